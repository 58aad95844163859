"""Read a role's runs for the simulation: when each task could start, started and ended (epoch seconds)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, text

#: Rows of a page.
PAGE = 5_000

# As in `insights.lists`, a page goes on after the last one's row.
RAN = text("""
SELECT id, account, priority, lock_key, completed_at, worker_id, worker_pid,
    CAST(extract(epoch FROM greatest(created_at, scheduled_for)) AS double precision) AS due,
    CAST(extract(epoch FROM coalesce(claimed_at, started_at)) AS double precision) AS claimed,
    CAST(extract(epoch FROM started_at) AS double precision) AS started,
    CAST(extract(epoch FROM completed_at) AS double precision) AS ended,
    CAST(extract(epoch FROM created_at) AS double precision) AS created,
    scheduled_for > created_at OR position('sql:' IN coalesce(enqueued_by, '')) > 0 AS later,
    retry_count + losses > 0 AS again, earlier.ends, earlier.by, earlier.kinds, earlier.moved
FROM celeriac.ended_after(:role, CAST(:after AS timestamptz), :id, CAST(:until AS timestamptz), :most) AS h
CROSS JOIN LATERAL (
    SELECT array_agg(CAST(extract(epoch FROM at) AS double precision) ORDER BY id) FILTER (WHERE ran) AS ends,
        array_agg(by ORDER BY id) FILTER (WHERE ran) AS by, array_agg(kind ORDER BY id) FILTER (WHERE ran) AS kinds,
        max(CAST(extract(epoch FROM at) AS double precision)) FILTER (WHERE NOT ran) AS moved
    FROM (SELECT id, at, by, kind, from_status = 'running' AS ran FROM celeriac.task_events
        WHERE task BETWEEN h.id AND h.id AND to_status = 'pending' AND from_status IN ('running', 'pending')) AS e
) AS earlier
ORDER BY completed_at, id
""")

COUNTED = text("""
SELECT role, CAST(sum(completed + failed) AS bigint) AS n FROM celeriac.outcomes
WHERE minute >= CAST(:since AS timestamptz) AND minute <= CAST(:until AS timestamptz) GROUP BY role
""")


#: A worker, and the pid of one of its processes.
Process = tuple[str | None, int | None]


class Before(NamedTuple):
    """A run that was not its task's last: when it ended, the kind of its event, and the pid of its process."""

    ended: float
    kind: str
    pid: int | None


class LastRun(NamedTuple):
    """The last run of a task; those of one ticket share `process` and `started`. Times are epoch seconds.

    `later`: no wake-up was sent for it, because it waited for its time or was enqueued in SQL. `moved`: when somebody
    last changed its priority or time while it waited. `again`: it ran before; `earlier`: those runs, as far as events
    show them.
    """

    id: int
    role: str
    account: str
    priority: int
    lock_key: str | None
    process: Process
    due: float
    claimed: float
    started: float
    ended: float
    created: float
    later: bool = False
    again: bool = False
    moved: float | None = None
    earlier: tuple[Before, ...] = ()


class RunsPage(NamedTuple):
    """A page of runs. `after`: where the next one begins; None if this is the last."""

    ran: list[LastRun]
    after: tuple[datetime, int] | None


def ran(connection: Connection, role: str, after: tuple[datetime, int], until: datetime, most: int = PAGE) -> RunsPage:
    """Return the next page of tasks that have run, among those that ended after this time and id."""
    parameters = {"role": role, "after": after[0], "id": after[1], "until": until, "most": most}
    rows = connection.execute(RAN, parameters).all()
    last = (rows[-1].completed_at, rows[-1].id) if len(rows) == most else None
    return RunsPage([_read(role, row) for row in rows if row.started is not None], last)


def counted(connection: Connection, since: datetime, until: datetime) -> dict[str, int]:
    """Return, by role that keeps no successes, how many tasks its workers counted as ended in these minutes."""
    return {row.role: row.n for row in connection.execute(COUNTED, {"since": since, "until": until})}


def _read(role: str, row: Row[Any]) -> LastRun:
    runs = zip(row.ends or (), row.kinds or (), row.by or (), strict=True)
    earlier = tuple(Before(ended, kind, _pid(by)) for ended, kind, by in runs)
    return LastRun(
        row.id, role, row.account, row.priority, row.lock_key, (row.worker_id, row.worker_pid), row.due, row.claimed,
        row.started, row.ended, row.created, row.later, row.again or bool(earlier), row.moved,
        earlier,
    )  # fmt: skip


def _pid(by: str | None) -> int | None:
    """Return the pid in a process's name, as its app writes it; None for any other actor that moved a task."""
    number = (by or "").rpartition(":")[2]
    return int(number) if number.isdecimal() else None
