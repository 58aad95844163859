"""A clock for tests: time passes for waiting tasks, without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from celeriac.errors import BadValue
from celeriac.roles.bounds import is_duration
from celeriac.testing.here import the_app

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Times of unfinished tasks, their entries and tickets, and of rates. INVARIANT: an entry's time is its row's; both
#: move.
TIMES = {
    "tasks": ("scheduled_for", "expires_at", "started_at", "created_at"),
    "ready": ("due_at",),
    "later": ("due_at",),
    "behind": ("due_at",),
    "parked": ("due_at",),
    "tickets": ("claimed_at", "started_at", "heartbeat_at"),
    "batchers": ("held_since", "held_next", "rescan_at"),
    "role_limits": ("taken_at",),
}

AGO = "CAST(:seconds AS double precision) * interval '1 second'"
ADVANCE = [
    text(f"UPDATE celeriac.{table} SET {', '.join(f'{column} = {column} - {AGO}' for column in columns)}")
    for table, columns in TIMES.items()
]


def advance(seconds: float, *, app: Celeriac | None = None) -> None:
    """Make everything unfinished so many seconds older: delays, expiries and leases run out, rates let more begin.

    It runs nothing: `drain` does. Raises BadValue. History, schedules and the handlers' own clocks stay.
    """
    if not is_duration(seconds):
        raise BadValue(f"advance({seconds!r:.100}): give seconds, at most 100 years")
    with the_app(app).database.transaction() as connection:
        for statement in ADVANCE:
            connection.execute(statement, {"seconds": seconds})
