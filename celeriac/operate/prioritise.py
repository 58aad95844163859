"""Prioritise: give unfinished tasks another priority; what waits is claimed in its new order from now on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, text

HOLD = text("""
SELECT id, role, priority FROM worker_tasks
WHERE task_id = :task_id AND status IN ('pending', 'claimed', 'running') FOR UPDATE
""")

PRIORITISE = text("""
WITH wanted AS (
    SELECT id, priority FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS w (id bigint, priority integer)
), changed AS (
    UPDATE worker_tasks t SET priority = w.priority, aged = 0, ages = true, updated_at = clock_timestamp()
    FROM wanted w WHERE t.id = w.id
    RETURNING t.id, t.role, t.status
)
INSERT INTO task_events (task, role, kind, from_status, to_status, by, why)
SELECT id, role, 'priority', status, status, :by, concat_ws(': ', 'to ' || priority, nullif(:why, ''))
FROM changed JOIN wanted USING (id)
""")


def hold(connection: Connection, task_id: str) -> Row[Any] | None:
    """An unfinished task's `id`, `role` and `priority`, kept as they are until the transaction ends."""
    return connection.execute(HOLD, {"task_id": task_id}).one_or_none()


def prioritise(connection: Connection, wanted: Mapping[int, int], *, by: str, why: str = "") -> None:
    """The priority of each row, all of them held by this transaction; each leaves an event."""
    rows = json.dumps([{"id": i, "priority": priority} for i, priority in wanted.items()])
    connection.execute(PRIORITISE, {"wanted": rows, "by": by, "why": why})
