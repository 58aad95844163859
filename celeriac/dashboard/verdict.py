"""The overview's headline: never that all is well where nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from celeriac.dashboard import words
from celeriac.dashboard.reading import Content
from celeriac.insights.history.alerts import Look

#: How a role is that somebody has to do something for, whether its alert fires already or not.
TROUBLED = ("stuck", "no workers", "failing")

#: Of the rules that the last look could not read, so many are named.
NAMED = 3


def verdict(panels: Mapping[str, Content], late: float) -> str:
    """`late`: seconds after which a look at what is watched should have come about."""
    silent = sum(bool(panel.stopped) for panel in panels.values())
    unknown = [f"{silent} of {len(panels)} checks did not answer"] if silent else []
    unknown += [sentence for look in panels["looks"].value or () for sentence in _not_known(look, late)]
    n = len(panels["alerts"].value or ()) + len(troubled(panels))
    if n:
        return "; ".join([f"{words.plural(n, 'thing needs', 'things need')} you", *unknown])
    if unknown:
        return f"Not known: {'; '.join(unknown)}"
    soon = len(panels["pending"].value or ())
    return f"{words.plural(soon, 'thing')} may need you soon" if soon else "All is well"


def troubled(panels: Mapping[str, Content]) -> list[Mapping[str, Any]]:
    """The roles that need somebody and of which no alert fires yet."""
    alerted = {alert["subject"] for alert in panels["alerts"].value or ()}
    rows: Sequence[Mapping[str, Any]] = panels["roles"].value or ()
    return [row for row in rows if row["health"] in TROUBLED and row["depth"].role not in alerted]


def _not_known(look: Look, late: float) -> Iterable[str]:
    whose = "what is watched" if look.name == "alerts" else f"what the {look.name} watch"
    if look.seconds is None:
        yield f"nobody has looked at {whose} yet"
    elif look.seconds > late:
        yield f"nobody has looked at {whose} for {words.took(round(look.seconds))}"
    if look.unread:
        more = f" and {len(look.unread) - NAMED} more" if len(look.unread) > NAMED else ""
        yield f"{', '.join(look.unread[:NAMED])}{more} could not be read"
