"""How many tasks there are. Exact up to a bound; beyond it an estimate from the planner's statistics, marked as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.states import ALL, COMPLETED

#: Counting stops here.
CAP = 5_000

# Each LIMIT has its index's ORDER BY, so that counting walks the index and nothing else. The finished are looked at
# until the bound, whatever they are: looking for successes among many failures could take for ever.
COUNTS = text("""
SELECT
    (SELECT count(*) FROM (SELECT FROM worker_tasks WHERE status = 'pending' ORDER BY role, -id LIMIT :most) AS p)
        AS pending,
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks WHERE status IN ('claimed', 'running') AND status = 'claimed'
        ORDER BY role, account LIMIT :most) AS c) AS claimed,
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks WHERE status IN ('claimed', 'running') AND status = 'running'
        ORDER BY role, account LIMIT :most) AS r) AS running,
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks WHERE status IN ('failed', 'cancelled') AND status = 'failed'
        ORDER BY role, -id LIMIT :most) AS f) AS failed,
    (SELECT count(*) FROM (
        SELECT FROM worker_tasks WHERE status IN ('failed', 'cancelled') AND status = 'cancelled'
        ORDER BY role, -id LIMIT :most) AS x) AS cancelled,
    e.finished, e.completed
FROM (
    SELECT count(*) AS finished, count(*) FILTER (WHERE status = 'completed') AS completed
    FROM (SELECT status FROM worker_tasks WHERE status IN ('completed', 'failed', 'cancelled')
        ORDER BY role, completed_at LIMIT :most) AS f
) AS e
""")

BELIEVED = text("""
SELECT value AS status, share * greatest(c.reltuples, 0) AS n
FROM pg_class c
JOIN pg_namespace s ON s.oid = c.relnamespace
JOIN pg_stats p ON p.schemaname = s.nspname AND p.tablename = c.relname AND p.attname = 'status',
unnest(CAST(CAST(p.most_common_vals AS text) AS text[]), p.most_common_freqs) AS common (value, share)
WHERE c.oid = CAST('worker_tasks' AS regclass)
""")

# INVARIANT of `names`: one descent per role that has pending or active rows, or is registered.
DEPTH = text("""
WITH RECURSIVE waiting AS (
    (SELECT role FROM worker_tasks WHERE status = 'pending' ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM waiting, LATERAL (
        SELECT role FROM worker_tasks WHERE status = 'pending' AND role > waiting.role ORDER BY role LIMIT 1) AS next
), busy AS (
    (SELECT role FROM worker_tasks WHERE status IN ('claimed', 'running') ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM busy, LATERAL (
        SELECT role FROM worker_tasks WHERE status IN ('claimed', 'running') AND role > busy.role
        ORDER BY role LIMIT 1) AS next
), names AS (
    SELECT role FROM roles UNION SELECT role FROM waiting UNION SELECT role FROM busy
)
SELECT names.role, coalesce(r.definition ->> 'queue', names.role) AS queue, coalesce(r.paused, false) AS paused,
    CAST(r.definition ->> 'window' AS integer) AS "window", pending.n AS pending, ready.n AS ready, later.n AS later,
    active.claimed, active.running, active.stale, oldest.seconds AS oldest_ready_seconds
FROM names LEFT JOIN roles r ON r.role = names.role
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM worker_tasks WHERE role = names.role AND status = 'pending' ORDER BY -id LIMIT :most) AS p) AS pending
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM worker_tasks WHERE role = names.role AND status = 'pending' AND waits_for IS NULL
    ORDER BY account LIMIT :most) AS p) AS ready
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
    SELECT FROM worker_tasks WHERE role = names.role AND waits_for = 'time'
    ORDER BY scheduled_for LIMIT :most) AS p) AS later
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'claimed') AS claimed, count(*) FILTER (WHERE status = 'running') AS running,
        count(*) FILTER (WHERE status = 'running' AND last_heartbeat_at < statement_timestamp()
            - coalesce(CAST(r.definition ->> 'stale_after' AS double precision), 600) * interval '1 second') AS stale
    FROM (SELECT status, last_heartbeat_at FROM worker_tasks
        WHERE role = names.role AND status IN ('claimed', 'running') ORDER BY account LIMIT :most) AS a) AS active
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM statement_timestamp() - min(scheduled_for)) AS seconds
    FROM (SELECT waits_for, scheduled_for FROM worker_tasks WHERE role = names.role AND status = 'pending'
        ORDER BY -id DESC LIMIT :look) AS first_ones
    WHERE waits_for IS NULL) AS oldest
ORDER BY names.role
""")

#: How many of a role's first pending rows are looked at for the oldest that is ready.
LOOK = 500


@dataclass(frozen=True, slots=True)
class Count:
    """`exact` False: more than were counted; `n` is what the planner believes, at least the bound."""

    n: int
    exact: bool = True


@dataclass(frozen=True, slots=True)
class RoleDepth:
    """What waits and runs of a role. `oldest_ready_seconds`: since the longest-waiting of its first pending rows was
    due, None if none of these is ready."""

    role: str
    queue: str
    paused: bool
    window: int | None
    pending: Count
    ready: Count
    later: Count
    claimed: int
    running: int
    stale: int
    oldest_ready_seconds: float | None


def counts(connection: Connection, *, cap: int = CAP) -> dict[str, Count]:
    """By status, each exact up to `cap`."""
    row = connection.execute(COUNTS, {"most": cap + 1}).one()._asdict()
    bounded = {status for status in ALL if row[status] > cap} | ({COMPLETED} if row["finished"] > cap else set())
    believed = {b.status: int(b.n) for b in connection.execute(BELIEVED)} if bounded else {}
    return {
        status: Count(max(min(row[status], cap), believed.get(status, 0)), exact=False)
        if status in bounded
        else Count(row[status])
        for status in ALL
    }


def depth(connection: Connection, *, cap: int = CAP) -> list[RoleDepth]:
    """Every role that is registered or has work, with what waits and runs, each exact up to `cap`."""
    rows = connection.execute(DEPTH, {"most": cap + 1, "look": LOOK}).mappings()
    return [_depth(dict(row), cap) for row in rows]


def _depth(row: dict[str, Any], cap: int) -> RoleDepth:
    bounded = {name: Count(min(row[name], cap), row[name] <= cap) for name in ("pending", "ready", "later")}
    seconds = row["oldest_ready_seconds"]
    return RoleDepth(
        **(row | bounded | {"oldest_ready_seconds": None if seconds is None else max(0.0, float(seconds))})
    )
