"""A clock for tests: time passes for waiting tasks, without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from celeriac.errors import BadValue
from celeriac.roles.bounds import is_duration
from celeriac.testing.here import the_app

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Columns with times of unfinished tasks, of their entries and tickets, and of rates. INVARIANT: an entry's time equals
#: its row's, so both move.
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
    """Make everything unfinished older by `seconds`: delays, expiries and leases run out, rates admit more tasks.

    It runs no task; `drain` does. History, schedules and the handlers' own clocks stay. Raises BadValue.
    """
    if not is_duration(seconds):
        raise BadValue(f"advance({seconds!r:.100}): give seconds, at most 100 years")
    with the_app(app).database.transaction() as connection:
        for statement in ADVANCE:
            connection.execute(statement, {"seconds": seconds})
