"""Find work that is left ready: tasks could start, a worker is idle, the window has space, and nobody claims them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, text

from celeriac.insights.fleet.resources import BUSY, HELD, is_true

#: A pass comes at least once in so long (seconds); for a role that is not prompt, once in two of its periods.
PATIENCE = 60.0

#: Good reasons for a pass to claim nothing, in the words of `dispatch.passes`.
GOOD_REASONS = (
    "the role is paused", "the window is full", "the rate limit is reached",
    "every account with work is paused or at its cap",
)  # fmt: skip

# A worker that backs off takes nothing new. If beat's pass of a role is switched off, that is taken as intended, also
# for its further queues.
LEFT = text(f"""
WITH held AS ({HELD}), idle AS (
    SELECT w.queues FROM celeriac.workers w LEFT JOIN held USING (worker_id)
    WHERE w.status = 'active' AND celeriac.is_heard(w.last_heartbeat_at) AND w.concurrency > {BUSY}
        AND NOT {is_true("is_backing_off", "w.resources")}
)
SELECT r.role, ready.n, patience.seconds
FROM celeriac.roles r
CROSS JOIN LATERAL (
    SELECT CASE WHEN coalesce(CAST(r.definition ->> 'prompt' AS boolean), true) THEN :patience
        ELSE greatest(:patience, 2 * CAST(r.definition ->> 'every' AS double precision)) END AS seconds
) AS patience
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (SELECT FROM celeriac.ready WHERE role = r.role ORDER BY account LIMIT :most) AS c
) AS ready
LEFT JOIN LATERAL (
    SELECT coalesce(why_nothing = ANY (CAST(:good AS text[])), true)
        AND last_at > statement_timestamp() - patience.seconds * interval '1 second' AS explains
    FROM celeriac.passes WHERE role BETWEEN r.role AND r.role ORDER BY role DESC, id DESC LIMIT 1
) AS pass ON true
WHERE NOT r.paused AND ready.n > 0 AND pass.explains IS NOT TRUE
    AND EXISTS (SELECT FROM idle WHERE idle.queues ? coalesce(r.definition ->> 'queue', r.role))
    AND (SELECT coalesce(sum(cardinality(ids)), 0) FROM celeriac.tickets WHERE role = r.role)
        < (SELECT size FROM celeriac.current_window(r.role))
    AND NOT EXISTS (SELECT FROM celeriac.scheduled_jobs s
        WHERE s.kind = 'pass' AND s.target = celeriac.role_of(r.role) AND NOT s.enabled)
""")


def left(connection: Connection, oldest: Mapping[str, float], most: int) -> dict[str, int]:
    """Return by role how many ready tasks are left, counted to `most`. `oldest`: for how many seconds its oldest could
    have started. A task that has just come is not counted. It takes look-ups only.
    """
    parameters = {"patience": PATIENCE, "good": list(GOOD_REASONS), "most": most}
    rows = connection.execute(LEFT, parameters).all()
    return {row.role: row.n for row in rows if oldest.get(row.role, 0.0) > row.seconds}
