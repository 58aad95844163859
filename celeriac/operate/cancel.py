"""Cancel: at once if nobody runs it; from running, the worker is told and stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sqlalchemy import Connection, text

from celeriac.settle.look import lead

CANCEL = text("""
WITH found AS (
    SELECT id, task_id, role, status, lock_key FROM worker_tasks
    WHERE task_id = ANY(CAST(:task_ids AS text[])) AND status IN ('pending', 'claimed', 'running')
    ORDER BY id FOR UPDATE
), ended AS (
    UPDATE worker_tasks t
    SET status = 'cancelled', waits_for = NULL, token = NULL, completed_at = clock_timestamp(),
        updated_at = clock_timestamp(), error_message = :why
    FROM found f WHERE t.id = f.id AND f.status <> 'running'
), asked AS (
    UPDATE worker_tasks t SET cancel_requested_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM found f WHERE t.id = f.id AND f.status = 'running'
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, 'cancel', status, CASE WHEN status = 'running' THEN 'running' ELSE 'cancelled' END, :by, :why
    FROM found
)
SELECT task_id, status, lock_key FROM found
""")


Cancelled = Literal["cancelled", "asked"]


def cancel(connection: Connection, task_id: str, *, by: str, why: str) -> Cancelled | None:
    """What happened: cancelled at once, its worker asked to stop, or None as there is no such unfinished task."""
    return cancel_all(connection, [task_id], by=by, why=why).get(task_id)


def cancel_all(connection: Connection, task_ids: Sequence[str], *, by: str, why: str) -> dict[str, Cancelled]:
    """The same for many; those that are over, or were never there, are left out."""
    rows = connection.execute(CANCEL, {"task_ids": list(task_ids), "by": by, "why": why}).all()
    ended = [row.lock_key for row in rows if row.status != "running" and row.lock_key is not None]
    lead(connection, ended)
    return {row.task_id: "asked" if row.status == "running" else "cancelled" for row in rows}
