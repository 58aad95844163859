"""Check whether a pass pays, after every settle and every enqueue that sends a wake-up."""

from __future__ import annotations

from sqlalchemy import Connection, text

from celeriac.dispatch.window import ahead
from celeriac.roles.role import Role
from celeriac.store.prepared import Prepared

#: After so many seconds without a ticket or a pass of the role, a pass pays even for a single slot.
QUIET = 1

# Room is checked before work: settles check far more often than there is room, and `ready` may begin with dead entries.
# There is no room while a ticket for each slot waits to be started: what becomes ready meanwhile shares the next
# tickets. A pass after each settle would make ever smaller tickets, and a queue of them. A ticket that has waited for
# more than a second is not counted: it may be lost, or all workers are busy. While a backlog drains, a pass pays once a
# quarter of the window is free, or of what a window by measure holds beyond its slots (`below`: `window.refill_below`).
# The last quarter is filled too if the role has had no ticket and no pass for a while: long tasks, which settle seldom,
# would leave it empty until beat's pass. A pass that claimed nothing counts, too; otherwise each check would run a pass
# while all ready tasks belong to accounts at their cap. If a pass left resume points, `ready` is not read here: the
# next pass finds out whether there is more.
WORK_AND_ROOM = text(f"""
WITH state AS MATERIALIZED (
    SELECT held_since, last_pass, seconds_per_task, points IS NOT NULL AND rescan_at > statement_timestamp() AS resumes
    FROM celeriac.batcher(:role)
), size AS MATERIALIZED (
    SELECT w.n, live.slots, w.n - CASE WHEN CAST(:window AS integer) IS NOT NULL THEN w.n
        ELSE greatest(4, w.n - live.slots) END / 4 AS below
    FROM (
        SELECT coalesce(sum(concurrency), 0) AS slots FROM celeriac.workers
        WHERE status = 'active' AND queues ? :queue AND celeriac.is_heard(last_heartbeat_at)
    ) AS live LEFT JOIN state ON true,
        LATERAL celeriac.window_of(CAST(:window AS integer), live.slots, state.seconds_per_task, :ahead) AS w (n)
), held AS MATERIALIZED (
    SELECT coalesce(sum(cardinality(ids)), 0) AS tasks, count(*) FILTER (
            WHERE worker_id IS NULL AND claimed_at > statement_timestamp() - interval '1 second') AS to_start,
        coalesce(max(claimed_at) < statement_timestamp() - interval '{QUIET} seconds', true) AS quiet
    FROM celeriac.tickets
    WHERE role = :role AND claimed_at >= coalesce((SELECT held_since FROM state), '-infinity')
)
SELECT (SELECT (tasks < size.below OR tasks < size.n AND quiet AND coalesce((
        SELECT last_at < statement_timestamp() - interval '{QUIET} seconds' FROM celeriac.passes
        WHERE id = (SELECT last_pass FROM state)), true))
    AND (to_start = 0 OR size.slots = 0 OR to_start < size.slots) FROM held, size)
    AND NOT EXISTS (SELECT FROM celeriac.roles WHERE role IN (:role, celeriac.role_of(:role)) AND paused)
    AND coalesce(
        (SELECT true FROM state WHERE resumes),
        (SELECT true FROM celeriac.ready WHERE role = :role ORDER BY account LIMIT 1),
        (SELECT true FROM celeriac.later
            WHERE role = :role AND due_at <= statement_timestamp() ORDER BY due_at LIMIT 1),
        false
    ) AND coalesce((
        SELECT celeriac.tokens(l) >= 1 + coalesce((
            SELECT sum(cardinality(ids)) FROM celeriac.tickets
            WHERE role = :role AND worker_id IS NULL
                AND claimed_at >= coalesce((SELECT held_since FROM state), '-infinity')), 0)
        FROM celeriac.role_limits l WHERE role = celeriac.role_of(:role) AND rate_limit IS NOT NULL), true)
""")

_WORK_AND_ROOM = Prepared(
    WORK_AND_ROOM, {"role": "text", "queue": "text", "window": "integer", "ahead": "double precision"}
)


def work_and_room(connection: Connection, role: Role) -> bool:
    """Return whether there is work, enough of the window is free and not every slot has a ticket to start.

    Cheap enough to be called after every settle.
    """
    asked = {"role": role.lane, "queue": role.queue, "window": role.window, "ahead": ahead(role)}
    return bool(_WORK_AND_ROOM.on(connection, asked).scalar_one())
