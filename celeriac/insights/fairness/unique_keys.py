"""Unique keys that are taken, and by which unfinished task. An enqueue with a taken key gets that task."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.insights.fairness.locks import HOLDERS
from celeriac.store.states import CLAIMED, PENDING, RUNNING

MOST = 1_000

_TAKEN = "SELECT role, unique_key, id, task_id, account, created_at, scheduled_for FROM celeriac.tasks"

TAKEN = text(f"""{_TAKEN}
WHERE unique_key IS NOT NULL
    AND (role, unique_key) > (coalesce(CAST(:role AS text), ''), coalesce(CAST(:key AS text), ''))
ORDER BY role, unique_key LIMIT :most
""")

TAKEN_OF_ROLE = text(f"""{_TAKEN}
WHERE role = :role AND unique_key >= coalesce(CAST(:key AS text), '') AND unique_key IS DISTINCT FROM :key
ORDER BY role, unique_key LIMIT :most
""")


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A role's key, and the unfinished task that has it."""

    role: str
    unique_key: str
    task: int
    task_id: str
    account: str
    status: str
    created_at: datetime
    due_at: datetime


def unique_keys(
    connection: Connection, role: str | None = None, *, limit: int = 100, after: tuple[str, str] | None = None
) -> list[UniqueKey]:
    """Return the taken keys by role and key; `after`: a role and a key, to return those that follow."""
    if not 1 <= limit <= MOST + 1:
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    of, key = after or (None, None)
    statement, parameters = (TAKEN, {"role": of}) if role is None else (TAKEN_OF_ROLE, {"role": role})
    rows = connection.execute(statement, parameters | {"key": key, "most": limit}).all()
    holders = connection.execute(HOLDERS, {"heads": [row.id for row in rows]})
    held = {row.id: RUNNING if row.worker_id else CLAIMED for row in holders}
    return [
        UniqueKey(
            row.role, row.unique_key, row.id, row.task_id, row.account, held.get(row.id, PENDING), row.created_at,
            row.scheduled_for,
        )
        for row in rows
    ]  # fmt: skip
