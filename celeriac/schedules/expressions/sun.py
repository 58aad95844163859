"""Events of the sun at a place, as in Celery's `solar` schedules; needs the package `ephem`. Pure."""

from __future__ import annotations

import importlib
import math
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from celeriac.errors import BadExpression

#: For each event: ephem's method, the sun's height (degrees), and whether that is its centre's. As in
#: `celery.schedules.solar`.
EVENTS = {
    "dawn_astronomical": ("next_rising", "-18", True),
    "dawn_nautical": ("next_rising", "-12", True),
    "dawn_civil": ("next_rising", "-6", True),
    "sunrise": ("next_rising", "-0:34", False),
    "solar_noon": ("next_transit", "0", False),
    "sunset": ("next_setting", "-0:34", False),
    "dusk_civil": ("next_setting", "-6", True),
    "dusk_nautical": ("next_setting", "-12", True),
    "dusk_astronomical": ("next_setting", "-18", True),
}

#: No event comes twice within this time, so searches that far apart find each event once.
_APART = timedelta(hours=1)

#: The times of an event, computed from different starts, differ by a second at most.
_CLOSE = timedelta(seconds=2)
_MOST_DAYS = 366
_EXAMPLE = "write for example '@solar sunset 52.52 13.4'"


class Solar(NamedTuple):
    """An event at a place: latitude and longitude in degrees, north and east positive."""

    event: str
    latitude: float
    longitude: float

    def after(self, moment: datetime) -> datetime:
        """Return the next event, to the second. Raises BadExpression if there is none within a year."""
        ephem: Any = _ephem()
        ask, height, centre = EVENTS[self.event]
        place = ephem.Observer()
        place.lat, place.lon = str(self.latitude), str(self.longitude)
        place.elev, place.pressure, place.horizon = 0, 0, height
        start = ephem.Date(moment.astimezone(UTC).replace(tzinfo=None))
        how = {"use_center": True} if centre else {}
        for _ in range(_MOST_DAYS):
            try:
                date = getattr(place, ask)(ephem.Sun(), start=start, **how)
                return date.datetime().replace(microsecond=0, tzinfo=UTC)
            except ephem.CircumpolarError:
                start = place.next_antitransit(ephem.Sun(), start=start)
        raise BadExpression(
            f"there is no {self.event} at {self.latitude:g} {self.longitude:g} within a year; {_EXAMPLE}"
        )

    def following(self, moment: datetime) -> datetime:
        """Return the first event after `moment`, which may itself be one."""
        instant = self.after(moment - _APART)
        return instant if instant - moment > _CLOSE else self.after(moment + _APART)


def read(text: str) -> Solar:
    """Parse `sunset 52.52 13.4`. Raises BadExpression."""
    event, *place = text.split() or [""]
    if event.lower() not in EVENTS:
        raise BadExpression(f"the sun has no {event!r}; there are {', '.join(EVENTS)}: {_EXAMPLE}")
    try:
        latitude, longitude = map(float, place)
    except ValueError:
        raise BadExpression(f"'@solar {text}' needs a latitude and a longitude in degrees; {_EXAMPLE}") from None
    if not (math.fabs(latitude) <= 90 and math.fabs(longitude) <= 180):
        raise BadExpression(f"'@solar {text}' is nowhere: give -90 to 90 and -180 to 180 degrees; {_EXAMPLE}")
    solar = Solar(event.lower(), latitude, longitude)
    solar.after(datetime(2000, 1, 1, tzinfo=UTC))
    return solar


def _ephem() -> Any:
    try:
        return importlib.import_module("ephem")
    except ModuleNotFoundError:
        raise BadExpression("'@solar' needs the package ephem: `pip install celeriac[solar]`") from None
