"""Move: let waiting tasks of a renamed role wait as tasks of the new role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from celeriac.errors import BadArguments
from celeriac.operate.audit import Change
from celeriac.operate.steer import Steered, audited, lock_allowed
from celeriac.roles.signature import Signature
from celeriac.store.plans import lookups

# Rows that only hold a place in a workflow and run no handler have no arguments. BETWEEN: only the key's own index has
# its order; with equality Postgres could choose any index of the role if statistics are old.
CALLS = text("""
SELECT i.id, jsonb_array_length(t.args) AS positional, ARRAY(SELECT jsonb_object_keys(t.kwargs) ORDER BY 1) AS names,
    t.headers -> 'canvas' ?| '{gate,fall_out}' IS TRUE AS is_called_with_nothing,
    (SELECT o.id FROM celeriac.tasks o WHERE o.role = :role AND o.unique_key BETWEEN t.unique_key AND t.unique_key
        ORDER BY o.unique_key LIMIT 1) AS held_by
FROM unnest(CAST(:ids AS bigint[])) AS i (id), LATERAL (SELECT * FROM celeriac.tasks WHERE id = i.id LIMIT 1) AS t
ORDER BY i.id
""")

# INVARIANT: the rows are locked by this transaction, so each entry is in the table that the task's row names.
MOVE = text("""
WITH wanted AS MATERIALIZED (
    SELECT t.*, celeriac.lane(:role, t.kept) AS lane FROM unnest(CAST(:ids AS bigint[])) AS i (id), LATERAL (
        SELECT id, role AS was, celeriac.lane(role, queue) AS role, account, lock_key, priority, scheduled_for,
            CASE WHEN (SELECT definition -> 'queues' ? queue AND definition ->> 'queue' <> queue
                FROM celeriac.roles WHERE role = :role) THEN queue END AS kept
        FROM celeriac.tasks WHERE id = i.id LIMIT 1) AS t
), of_ready AS MATERIALIZED (
    SELECT e.part, e.entry, w.lane FROM wanted w, LATERAL (
        SELECT tableoid AS part, ctid AS entry FROM celeriac.ready
        WHERE role = w.role AND account = w.account AND priority = w.priority AND due_at = w.scheduled_for
            AND id = w.id LIMIT 1) AS e
), in_ready AS (
    UPDATE celeriac.ready e SET role = f.lane FROM of_ready f
    WHERE e.ctid = f.entry AND e.tableoid = f.part AND e.ctid = ANY (ARRAY(SELECT entry FROM of_ready))
), in_later AS (
    UPDATE celeriac.later e SET role = w.lane FROM wanted w WHERE w.id = e.id AND e.ctid = ANY (ARRAY(
        SELECT e.ctid FROM wanted w, LATERAL (
            SELECT ctid FROM celeriac.later
            WHERE role = w.role AND account = w.account AND due_at = w.scheduled_for AND id = w.id LIMIT 1) AS e))
), in_behind AS (
    UPDATE celeriac.behind e SET role = w.lane FROM wanted w WHERE w.id = e.id AND e.ctid = ANY (ARRAY(
        SELECT e.ctid FROM wanted w, LATERAL (
            SELECT ctid FROM celeriac.behind
            WHERE lock_key = w.lock_key AND priority = w.priority AND due_at = w.scheduled_for AND id = w.id
            LIMIT 1) AS e))
), in_parked AS (
    UPDATE celeriac.parked e SET role = w.lane FROM wanted w WHERE w.id = e.id AND e.ctid = ANY (ARRAY(
        SELECT e.ctid FROM wanted w, LATERAL (
            SELECT ctid FROM celeriac.parked
            WHERE account = w.account AND role = w.role AND priority = w.priority AND due_at = w.scheduled_for
                AND id = w.id LIMIT 1) AS e))
), in_barriers AS (
    UPDATE celeriac.barriers SET role = :role WHERE id = ANY (ARRAY(SELECT id FROM wanted))
), changed AS (
    UPDATE celeriac.tasks t SET role = :role, queue = w.kept, updated_at = clock_timestamp()
    FROM wanted w WHERE t.id = w.id AND t.id = ANY (ARRAY(SELECT id FROM wanted))
    RETURNING t.id, w.was
)
INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, by, why)
SELECT id, :role, 'moved', 'pending', 'pending', :by, concat_ws(': ', 'from role ' || was, nullif(:why, ''))
FROM changed
""")


def move(
    connection: Connection, ids: Sequence[int], role: str, signature: Signature, *, by: str, why: str = ""
) -> Steered:
    """Make waiting tasks those of this role, whose handler has this `signature`; their keys and counters stay. A task
    is refused if its arguments do not fit, or if an unfinished task of the role has its unique key.
    """
    rows, result = lock_allowed(connection, ids, "move")
    with lookups(connection):
        calls = connection.execute(CALLS, {"ids": [row.id for row in rows], "role": role}).all()
    for call in calls:
        if (problem := _why_not(call, signature)) is not None:
            result.refused[call.id] = problem
    allowed = [row for row in rows if row.id not in result.refused and row.role != role]
    moved = _moved(connection, allowed, result, {"role": role, "by": by, "why": why})
    changes = [Change(str(row.id), {"role": row.role}, {"role": role}) for row in moved]
    return audited(connection, result, changes, action="move", by=by, why=why)


def _why_not(call: Row[Any], signature: Signature) -> str | None:
    if call.held_by is not None:
        return f"task {call.held_by} of that role has its unique key"
    if call.is_called_with_nothing or signature.lenient:
        return None
    try:
        signature.bind((None,) * call.positional, dict.fromkeys(call.names))
    except BadArguments as error:
        return str(error).removesuffix("; nothing was enqueued")
    return None


def _moved(
    connection: Connection, rows: Sequence[Row[Any]], result: Steered, parameters: dict[str, Any]
) -> Sequence[Row[Any]]:
    """Move tasks and return them. If somebody has taken a unique key since it was checked, each task is tried alone."""
    if not rows:
        return []
    try:
        with connection.begin_nested(), lookups(connection):
            connection.execute(MOVE, parameters | {"ids": [row.id for row in rows]})
    except IntegrityError:
        if len(rows) == 1:
            result.refused[rows[0].id] = f"another task of that role has its unique key {rows[0].unique_key!r} by now"
            return []
        return [done for row in rows for done in _moved(connection, [row], result, parameters)]
    return rows
