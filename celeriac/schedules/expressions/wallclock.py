"""Conversion between instants (UTC) and the readings of a time zone's clocks. Pure, in whole seconds.

Clocks are set forward (readings that never come: a gap) and back (readings that come twice: two passes).
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)

#: No zone changes its offset twice within this time.
_STEP = timedelta(days=1)


def reading(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return the reading of the clocks, without a zone."""
    return instant.astimezone(zone).replace(tzinfo=None)


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant at which the clocks first read `wall`; if they never do, that at which they are set
    past it.
    """
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return first if reading(first, zone) == wall else _change(second, first, zone)


def first_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first change of the clocks in (after, until], None without one."""
    while after < until:
        step = min(after + _STEP, until)
        if _offset(step, zone) != _offset(after, zone):
            return _change(after, step, zone)
        after = step
    return None


def _offset(at: datetime, zone: ZoneInfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()


def _change(old: datetime, new: datetime, zone: ZoneInfo) -> datetime:
    """Return the first second whose offset differs from that at `old`; `new` has another one."""
    before = _offset(old, zone)
    seconds = range((new - old) // SECOND)
    return old + SECOND * bisect_left(seconds, True, key=lambda n: _offset(old + n * SECOND, zone) != before)
