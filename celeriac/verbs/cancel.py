"""Cancel: at once if nobody runs it; from running, the worker is told and stops."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, text

from celeriac.verbs.promote import lead

CANCEL = text("""
WITH found AS (
    SELECT id, role, status, lock_key FROM worker_tasks
    WHERE task_id = :task_id AND status IN ('pending', 'claimed', 'running') FOR UPDATE
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
SELECT status, lock_key FROM found
""")


def cancel(connection: Connection, task_id: str, *, by: str, why: str) -> Literal["cancelled", "asked"] | None:
    """What happened: cancelled at once, its worker asked to stop, or None as there is no such unfinished task."""
    row = connection.execute(CANCEL, {"task_id": task_id, "by": by, "why": why}).one_or_none()
    if row is None:
        return None
    if row.status == "running":
        return "asked"
    lead(connection, [row.lock_key] if row.lock_key is not None else [])
    return "cancelled"
