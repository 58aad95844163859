"""Prioritise: give unfinished tasks another priority; waiting ones are claimed in the new order from now on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.store.plans import lookups

HOLD = text("""
WITH task AS MATERIALIZED (SELECT id FROM celeriac.tasks WHERE task_id = :task_id),
held AS MATERIALIZED (SELECT found.id FROM task, celeriac.hold(ARRAY[task.id], :only_waiting) AS found (id))
SELECT id FROM held
""")

HELD = text("SELECT id, role, priority FROM celeriac.tasks WHERE id = :id")

# INVARIANT: the tasks are locked by this transaction, so each entry is in the table that the task's row names.
PRIORITISE = text("""
WITH wanted AS MATERIALIZED (
    SELECT t.id, celeriac.lane(t.role, t.queue) AS role, t.account, t.lock_key, t.priority AS was, t.scheduled_for,
        w.priority
    FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS w (id bigint, priority integer), LATERAL (
        SELECT * FROM celeriac.tasks WHERE id = w.id LIMIT 1) AS t
), of_ready AS MATERIALIZED (
    SELECT e.part, e.entry, w.priority FROM wanted w, LATERAL (
        SELECT tableoid AS part, ctid AS entry FROM celeriac.ready
        WHERE role = w.role AND account = w.account AND priority = w.was AND due_at = w.scheduled_for AND id = w.id
        LIMIT 1) AS e
), in_ready AS (
    UPDATE celeriac.ready e SET priority = f.priority FROM of_ready f
    WHERE e.ctid = f.entry AND e.tableoid = f.part AND e.ctid = ANY (ARRAY(SELECT entry FROM of_ready))
), of_behind AS MATERIALIZED (
    SELECT e.entry, w.priority FROM wanted w, LATERAL (
        SELECT ctid AS entry FROM celeriac.behind
        WHERE lock_key = w.lock_key AND priority = w.was AND due_at = w.scheduled_for AND id = w.id LIMIT 1) AS e
), in_behind AS (
    UPDATE celeriac.behind e SET priority = f.priority FROM of_behind f
    WHERE e.ctid = f.entry AND e.ctid = ANY (ARRAY(SELECT entry FROM of_behind))
), of_parked AS MATERIALIZED (
    SELECT e.entry, w.priority FROM wanted w, LATERAL (
        SELECT ctid AS entry FROM celeriac.parked
        WHERE account = w.account AND role = w.role AND priority = w.was AND due_at = w.scheduled_for AND id = w.id
        LIMIT 1) AS e
), in_parked AS (
    UPDATE celeriac.parked e SET priority = f.priority FROM of_parked f
    WHERE e.ctid = f.entry AND e.ctid = ANY (ARRAY(SELECT entry FROM of_parked))
), changed AS (
    UPDATE celeriac.tasks t SET priority = w.priority, aged = 0, updated_at = clock_timestamp()
    FROM wanted w WHERE t.id = w.id AND t.id = ANY (ARRAY(SELECT id FROM wanted))
    RETURNING t.id, t.role, w.role AS lane, t.priority
)
INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
SELECT c.id, c.role, 'priority', held.status, held.status, :by, concat_ws(': ', 'to ' || c.priority, nullif(:why, ''))
FROM changed c, LATERAL (
    SELECT coalesce((SELECT CASE WHEN worker_id IS NULL THEN 'claimed' ELSE 'running' END FROM celeriac.tickets
        WHERE role = c.lane AND c.id = ANY (ids)), 'pending') AS status) AS held
""")


def hold(connection: Connection, task_id: str, *, only_waiting: bool = False) -> Row[Any] | None:
    """Lock an unfinished task until the transaction ends and return its `id`, `role` and `priority`.

    `only_waiting`: return None for a task that is claimed or runs, because its worker would wait for this transaction.
    """
    task = connection.execute(HOLD, {"task_id": task_id, "only_waiting": only_waiting}).scalar_one_or_none()
    return None if task is None else connection.execute(HELD, {"id": task}).one_or_none()


def prioritise(connection: Connection, wanted: Mapping[int, int], *, by: str, why: str = "") -> None:
    """Set the priority of each task, all locked by this transaction; each gets an event."""
    rows = json.dumps([{"id": i, "priority": priority} for i, priority in wanted.items()])
    with lookups(connection):
        connection.execute(PRIORITISE, {"wanted": rows, "by": by, "why": why})
