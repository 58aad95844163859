"""Hasten: what waits for its time is due now."""

from __future__ import annotations

from sqlalchemy import Connection, text

HASTEN = text("""
WITH found AS (
    SELECT id, role, scheduled_for FROM worker_tasks WHERE task_id = :task_id AND waits_for = 'time' FOR UPDATE
), changed AS (
    UPDATE worker_tasks t SET scheduled_for = clock_timestamp(), updated_at = clock_timestamp()
    FROM found f WHERE t.id = f.id
), told AS (
    INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
    SELECT id, role, 'hasten', 'pending', 'pending', :by, 'was due at ' || scheduled_for FROM found
)
SELECT role FROM found
""")


def hasten(connection: Connection, task_id: str, *, by: str) -> str | None:
    """The task's role; None if no such task waits for its time."""
    role: str | None = connection.execute(HASTEN, {"task_id": task_id, "by": by}).scalar_one_or_none()
    return role
