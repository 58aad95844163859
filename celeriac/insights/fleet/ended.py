"""Read which tasks ended, or lost their run, outside of the run itself, for the process that reports events."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.states import CANCELLED, FAILED

#: Kinds of task events that the settling process reports itself if the task ran. A task can also expire in SQL.
SETTLED = ("retry", "retry_round", "snooze", "failed", "timeout", "expired", "cancelled", "late_finish")

#: Kinds of events by which a run came to nothing; its task waits again or has failed.
LOST = ("worker_lost", "abandoned", "rescue", "lost")

#: The kind of event by which somebody requested another attempt.
AGAIN = "retry_asked"

# The statement waits for no open transaction, so an event whose transaction commits more than :lag seconds after it
# began may be missed. INVARIANT: a task that waits again is reported only while it waits; otherwise it would seem to
# wait while it runs.
SINCE = text("""
WITH following AS MATERIALIZED (
    SELECT * FROM celeriac.task_events WHERE id > :after ORDER BY id LIMIT :most
), ripe AS MATERIALIZED (
    SELECT * FROM (
        SELECT *, bool_and(at < statement_timestamp() - :lag * interval '1 second') OVER (ORDER BY id) AS all_so_far
        FROM following) AS f
    WHERE all_so_far
)
SELECT s.id, s.kind, s.to_status AS became, s.why, t.task_id, t.role, t.headers, t.args, t.kwargs, t.retry_count,
    w.resources ->> 'node' AS node
FROM ripe s
LEFT JOIN LATERAL (
    SELECT task_id, role, headers, args, kwargs, retry_count, CAST(NULL AS text) AS worker_id FROM celeriac.tasks
    WHERE id = s.task AND s.from_status <> 'claimed' AND s.to_status = 'pending'
        AND s.kind = ANY (CAST(:back AS text[])) AND s.task <> ALL (ARRAY(SELECT unnest(ids) FROM celeriac.tickets))
    UNION ALL
    SELECT task_id, role, headers, args, kwargs, retry_count, worker_id
    FROM celeriac.history_with(ARRAY[s.task])
    WHERE s.to_status = status AND s.from_status <> s.to_status
        AND (s.from_status <> 'running' OR s.kind <> ALL (CAST(:settled AS text[])))
        AND s.to_status = ANY (CAST(:over AS text[]))
    LIMIT 1
) AS t ON true
LEFT JOIN celeriac.workers w ON w.worker_id = coalesce(t.worker_id, s.by)
ORDER BY s.id
""")

LAST = text("SELECT coalesce(max(id), 0) FROM celeriac.task_events")


def since(connection: Connection, after: int, *, lag: float, most: int) -> list[dict[str, Any]]:
    """Return up to `most` task events after the given one; `task_id` is None in events that need no report."""
    parameters = {"after": after, "lag": lag, "most": most, "settled": list(SETTLED), "back": [*LOST, AGAIN]}
    return [dict(row) for row in connection.execute(SINCE, parameters | {"over": [CANCELLED, FAILED]}).mappings()]


def last(connection: Connection) -> int:
    """Return the id of the last task event."""
    return int(connection.execute(LAST).scalar_one())
