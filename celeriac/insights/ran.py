"""What ran of a role, for whoever plays it again: when each task could start, started and ended, in epoch seconds."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, text

#: Rows of a page.
PAGE = 5_000

# As `insights.lists`: a page goes on behind the last one's row, by `history_of_role`.
RAN = text("""
SELECT id, account, priority, lock_key, completed_at, worker_id, worker_pid,
    CAST(extract(epoch FROM greatest(created_at, scheduled_for)) AS double precision) AS due,
    CAST(extract(epoch FROM coalesce(claimed_at, started_at)) AS double precision) AS claimed,
    CAST(extract(epoch FROM started_at) AS double precision) AS started,
    CAST(extract(epoch FROM completed_at) AS double precision) AS ended,
    retry_count + losses > 0 AS again
FROM celeriac.history
WHERE role = :role AND (completed_at, id) > (CAST(:after AS timestamptz), :id)
    AND completed_at <= CAST(:until AS timestamptz)
ORDER BY completed_at, id LIMIT :most
""")


class Ran(NamedTuple):
    """`again`: it ran before, too; what is known is its last run. Tasks of one ticket have `process` and `started`."""

    id: int
    account: str
    priority: int
    lock_key: str | None
    process: tuple[str | None, int | None]
    due: float
    claimed: float
    started: float
    ended: float
    again: bool


class Page(NamedTuple):
    """`after`: where the next one begins; None if this is the last."""

    ran: list[Ran]
    after: tuple[datetime, int] | None


def ran(connection: Connection, role: str, after: tuple[datetime, int], until: datetime, most: int = PAGE) -> Page:
    """Of those that ended behind this time and id: the next ones that ran."""
    given = {"role": role, "after": after[0], "id": after[1], "until": until, "most": most}
    rows = connection.execute(RAN, given).all()
    last = (rows[-1].completed_at, rows[-1].id) if len(rows) == most else None
    return Page([_read(row) for row in rows if row.started is not None], last)


def _read(row: Row[Any]) -> Ran:
    return Ran(
        row.id, row.account, row.priority, row.lock_key, (row.worker_id, row.worker_pid), row.due, row.claimed,
        row.started, row.ended, row.again,
    )  # fmt: skip
