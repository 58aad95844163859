"""Read the tasks that one worker holds, and those it may get next, for Celery's `inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

#: Most rows in a list: a reply of remote control is one message.
MOST = 500

_COLUMNS = """t.id, t.task_id, t.role, t.args, t.kwargs, t.headers, t.priority, t.losses, t.retry_count,
    t.scheduled_for, t.queue"""

# INVARIANT: two look-ups, by the worker's name and by tokens; no ticket of another worker is read.
HELD = text(f"""
WITH mine AS MATERIALIZED (
    SELECT * FROM (SELECT ids, worker_pid, claimed_at, token FROM celeriac.tickets WHERE worker_id = :worker_id) AS run
    UNION ALL
    SELECT ids, worker_pid, claimed_at, token FROM celeriac.tickets
    WHERE token = ANY (CAST(:tokens AS uuid[])) AND worker_id IS NULL
), held AS MATERIALIZED (
    SELECT i.id, m.worker_pid FROM mine m, unnest(m.ids) WITH ORDINALITY AS i (id, n)
    ORDER BY m.claimed_at, m.token, i.n LIMIT :most
)
SELECT {_COLUMNS}, h.worker_pid FROM held h, LATERAL (SELECT * FROM celeriac.tasks WHERE id = h.id LIMIT 1) AS t
""")

LATER = text(f"""
SELECT {_COLUMNS}, CAST(NULL AS integer) AS worker_pid
FROM (
    SELECT l.id, l.due_at FROM unnest(CAST(:lanes AS text[])) AS r (role), LATERAL (
        SELECT id, due_at FROM celeriac.later WHERE role = r.role ORDER BY due_at LIMIT :most) AS l
    ORDER BY l.due_at LIMIT :most
) AS next, LATERAL (SELECT * FROM celeriac.tasks WHERE id = next.id LIMIT 1) AS t
ORDER BY next.due_at
""")

WHICH_OF = text(f"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM celeriac.tasks WHERE task_id = ANY (CAST(:task_ids AS text[]))
), held AS MATERIALIZED (
    SELECT i.id, k.token, k.worker_id, k.worker_pid FROM celeriac.tickets k, unnest(k.ids) AS i (id)
    WHERE k.ids && ARRAY(SELECT id FROM wanted) AND i.id = ANY (ARRAY(SELECT id FROM wanted))
)
SELECT {_COLUMNS}, k.worker_pid, CASE WHEN k.token IS NOT NULL THEN 'reserved' ELSE 'scheduled' END AS word
FROM wanted t LEFT JOIN held k ON k.id = t.id
WHERE (
    k.worker_id = :worker_id OR k.token = ANY (CAST(:tokens AS uuid[]))
    OR k.token IS NULL AND celeriac.lane(t.role, t.queue) = ANY (CAST(:lanes AS text[])) AND EXISTS (
        SELECT FROM celeriac.later l
        WHERE l.role = celeriac.lane(t.role, t.queue) AND l.account = t.account
            AND l.due_at = t.scheduled_for AND l.id = t.id))
""")

CANCELLED = text("""
SELECT found.task_id FROM unnest(CAST(:roles AS text[])) AS r (role), LATERAL (
    SELECT task_id, id FROM celeriac.ended
    WHERE status = 'cancelled' AND role = r.role ORDER BY status, role, (-id) LIMIT :most) AS found
ORDER BY found.id DESC LIMIT :most
""")

Row = dict[str, Any]


def held(connection: Connection, worker_id: str, tokens: Sequence[str], *, most: int = MOST) -> list[Row]:
    """Return the tasks of the tickets that this worker has started, and of those it has taken from Redis (`tokens`)."""
    parameters = {"worker_id": worker_id, "tokens": list(tokens), "most": most}
    return [dict(row) for row in connection.execute(HELD, parameters).mappings()]


def later(connection: Connection, lanes: Sequence[str]) -> list[Row]:
    """Return the tasks of these lanes that wait for their time, the next ones first."""
    return [dict(row) for row in connection.execute(LATER, {"lanes": list(lanes), "most": MOST}).mappings()]


def which_of(
    connection: Connection, task_ids: Sequence[str], worker_id: str, tokens: Sequence[str], lanes: Sequence[str]
) -> list[Row]:
    """Return which of these tasks the worker holds (`word` is reserved), and which wait for their time (scheduled)."""
    parameters = {"task_ids": list(task_ids), "worker_id": worker_id, "tokens": list(tokens), "lanes": list(lanes)}
    return [dict(row) for row in connection.execute(WHICH_OF, parameters).mappings()]


def cancelled(connection: Connection, roles: Sequence[str]) -> list[str]:
    """Return the tasks of these roles that were cancelled last, the newest first."""
    return list(connection.execute(CANCELLED, {"roles": list(roles), "most": MOST}).scalars())
