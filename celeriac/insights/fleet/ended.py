"""What ended tasks, or took them from their runs, elsewhere than in their own runs: for who tells of it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.states import CANCELLED, FAILED

#: What a settle leaves of a task that ran, of which the process that settles tells. One expires in SQL, too.
SETTLED = ("retry", "retry_round", "snooze", "failed", "timeout", "expired", "cancelled", "late_finish")

#: A run that came to nothing; its task waits again, or has failed.
LOST = ("worker_lost", "abandoned", "rescue", "lost")

#: Somebody asked for another attempt.
AGAIN = "retry_asked"

# Nobody's transaction is waited for: what commits later than :lag seconds after it began may be passed by.
# INVARIANT: of a task that waits again is told only while it does: later, it would seem to wait while it runs.
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
    """The next task events after that one, at most so many; `task_id` is None in those of no concern."""
    parameters = {"after": after, "lag": lag, "most": most, "settled": list(SETTLED), "back": [*LOST, AGAIN]}
    return [dict(row) for row in connection.execute(SINCE, parameters | {"over": [CANCELLED, FAILED]}).mappings()]


def last(connection: Connection) -> int:
    """The last task event there is."""
    return int(connection.execute(LAST).scalar_one())
