"""Prioritise: give an unfinished task another priority; what waits is claimed in its new order from now on."""

from __future__ import annotations

from sqlalchemy import Connection, text

ROLE = text("SELECT role FROM worker_tasks WHERE task_id = :task_id")

PRIORITISE = text("""
WITH found AS (
    SELECT id, role, status, priority FROM worker_tasks
    WHERE task_id = :task_id AND status IN ('pending', 'claimed', 'running')
        AND (priority < :priority OR (priority > :priority AND NOT :only_raise))
    FOR UPDATE
), changed AS (
    UPDATE worker_tasks t SET priority = :priority, aged = 0, updated_at = clock_timestamp()
    FROM found f WHERE t.id = f.id
)
INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
SELECT id, role, 'priority', status, status, :by, 'from ' || priority || ' to ' || :priority FROM found
""")


def role_of(connection: Connection, task_id: str) -> str | None:
    role: str | None = connection.execute(ROLE, {"task_id": task_id}).scalar_one_or_none()
    return role


def prioritise(connection: Connection, task_id: str, priority: int, *, only_raise: bool, by: str) -> bool:
    """Whether it changed anything: the task may be finished, gone, or have that priority (or a higher one)."""
    given = {"task_id": task_id, "priority": priority, "only_raise": only_raise, "by": by}
    return bool(connection.execute(PRIORITISE, given).rowcount)
