"""By a key: which task holds a lock, which one holds a unique key. One look into a unique index each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, TextClause, text

from celeriac.insights.lists import COLUMNS

HOLDER = text(f"""
SELECT {COLUMNS} FROM worker_tasks
WHERE lock_key = :lock_key AND waits_for IS NULL AND status IN ('pending', 'claimed', 'running')
    AND status IN ('claimed', 'running')
""")

UNFINISHED = text(f"""
SELECT {COLUMNS} FROM worker_tasks
WHERE role = :role AND unique_key = :unique_key AND status IN ('pending', 'claimed', 'running')
""")


def holder(connection: Connection, lock_key: str) -> dict[str, Any] | None:
    """The task that is claimed or running under this lock; never more than one."""
    return _row(connection, HOLDER, lock_key=lock_key)


def unfinished(connection: Connection, role: str, unique_key: str) -> dict[str, Any] | None:
    """The role's task that is waiting or active under this unique key; never more than one."""
    return _row(connection, UNFINISHED, role=role, unique_key=unique_key)


def _row(connection: Connection, statement: TextClause, **key: str) -> dict[str, Any] | None:
    found = connection.execute(statement, key).mappings().one_or_none()
    return None if found is None else dict(found)
