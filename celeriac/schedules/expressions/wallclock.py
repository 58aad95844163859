"""Between instants (UTC) and what the clocks of a time zone read. Pure, in whole seconds.

Clocks are set forward (readings that never come: a gap) and back (readings that come twice: two passes). `zoneinfo`
tells the offset of an instant, not when it changes; a change is therefore found by bisection.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

SECOND = timedelta(seconds=1)

#: No zone changes its offset twice within it.
_STEP = timedelta(days=1)


def reading(instant: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks read, without a zone; `fold` is 1 in the second pass."""
    return instant.astimezone(zone).replace(tzinfo=None)


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks first read `wall`; if they never do, when they are set past it."""
    first = _on_pass(wall, zone, 0)
    if reading(first, zone) == wall:
        return first
    return _change(_on_pass(wall, zone, 1), first, zone)


def end_of_first_pass(at: datetime, zone: ZoneInfo) -> datetime:
    """For an instant of the second pass: the first reading that does not come twice."""
    back = _change(_on_pass(reading(at, zone), zone, 0), at, zone)
    return reading(back - SECOND, zone) + SECOND


def first_change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """When the clocks are set for the first time, if they are in (after, until]."""
    while after < until:
        step = min(after + _STEP, until)
        if _offset(step, zone) != _offset(after, zone):
            return _change(after, step, zone)
        after = step
    return None


def _on_pass(wall: datetime, zone: ZoneInfo, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _offset(at: datetime, zone: ZoneInfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """INVARIANT: the offset at `before` is the old one, at `after` another; whole seconds lie between."""
    old = _offset(before, zone)
    while after - before > SECOND:
        middle = before + (after - before) // SECOND // 2 * SECOND
        before, after = (middle, after) if _offset(middle, zone) == old else (before, middle)
    return after
