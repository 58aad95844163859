"""Hasten: make a task that waits for its time due now."""

from __future__ import annotations

from sqlalchemy import Connection, text

# INVARIANT: entry and row have the same time; the entry is locked first, as everywhere.
HASTEN = text("""
WITH task AS MATERIALIZED (
    SELECT id, celeriac.lane(role, queue) AS role, account, scheduled_for, clock_timestamp() AS now
    FROM celeriac.tasks WHERE task_id = :task_id
), entry AS (
    UPDATE celeriac.later l SET due_at = task.now FROM task
    WHERE l.id = task.id AND l.ctid = ANY (ARRAY(
        SELECT l.ctid FROM task, LATERAL (
            SELECT ctid FROM celeriac.later
            WHERE role = task.role AND account = task.account AND due_at = task.scheduled_for AND id = task.id
            LIMIT 1) AS l))
    RETURNING l.id
), changed AS (
    UPDATE celeriac.tasks t SET scheduled_for = task.now, updated_at = task.now FROM task, entry
    WHERE t.id = task.id AND entry.id = task.id AND t.id = ANY (ARRAY(SELECT id FROM entry))
), told AS (
    INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
    SELECT task.id, celeriac.role_of(role), 'hasten', 'pending', 'pending', :by, 'was due at ' || scheduled_for
    FROM task JOIN entry USING (id)
)
SELECT role FROM task JOIN entry USING (id)
""")


def hasten(connection: Connection, task_id: str, *, by: str) -> str | None:
    """Make the task due now and return its role; None if no such task waits for its time."""
    role: str | None = connection.execute(HASTEN, {"task_id": task_id, "by": by}).scalar_one_or_none()
    return role
