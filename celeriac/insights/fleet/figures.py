"""Figures for metrics beyond those that alerts compare: of roles, schedules and tables, each read with a bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, RowMapping, text

from celeriac.insights.fleet.resources import BUSY, HELD
from celeriac.insights.tasks.clock import LATELY, lately

SERVED = text(f"""
WITH held AS ({HELD})
SELECT r.role, coalesce((SELECT size FROM celeriac.current_window(r.role)), 0) AS "window", r.paused, live.*,
    coalesce(CAST(r.definition ->> 'wait_objective' AS double precision), :wait) AS objective,
    (SELECT CAST(extract(epoch FROM statement_timestamp() - min(started_at)) AS double precision)
        FROM celeriac.tickets WHERE role = r.role) AS running_oldest
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE fresh AND status = 'active') AS active,
        count(*) FILTER (WHERE fresh AND status = 'draining') AS draining,
        count(*) FILTER (WHERE NOT fresh) AS silent,
        CAST(extract(epoch FROM statement_timestamp() - min(since)) AS double precision) AS silence,
        coalesce(sum(concurrency) FILTER (WHERE fresh AND status = 'active'), 0) AS slots,
        coalesce(sum(busy) FILTER (WHERE fresh AND status = 'active'), 0) AS busy
    FROM (
        SELECT status, concurrency, {BUSY} AS busy, greatest(last_heartbeat_at, pg_postmaster_start_time()) AS since,
            celeriac.is_heard(last_heartbeat_at) AS fresh
        FROM celeriac.workers w LEFT JOIN held USING (worker_id)
        WHERE status <> 'stopped' AND queues ? coalesce(r.definition ->> 'queue', r.role)
            AND last_heartbeat_at > statement_timestamp() - interval '1 hour'
    ) AS w
) AS live
""")

RECENT = text(f"""
SELECT r.role, newest.completed + coalesce(counted.completed, 0) AS completed,
    newest.failed + coalesce(counted.failed, 0) AS failed, newest.cancelled
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'completed' AND NOT celeriac.is_counted(r.definition, status))
            AS completed,
        count(*) FILTER (WHERE status = 'failed' AND NOT celeriac.is_counted(r.definition, status)) AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM (
        SELECT status FROM celeriac.history
        WHERE role = r.role AND {LATELY}
        ORDER BY completed_at DESC LIMIT :most) AS h
) AS newest
LEFT JOIN LATERAL (
    SELECT CAST(sum(completed) AS bigint) AS completed,
        CAST(sum(failed) FILTER (WHERE r.definition -> 'keep' = '0') AS bigint) AS failed
    FROM celeriac.outcomes
    WHERE role = r.role AND minute > statement_timestamp() - interval '1 hour'
        AND r.definition -> 'keep' IN ('null', '0')
) AS counted ON true
""")

# INVARIANT: one descent an account.
WAITING = text("""
SELECT r.role, walk.n FROM celeriac.roles r CROSS JOIN LATERAL (
    WITH RECURSIVE accounts AS (
        (SELECT account, 1 AS n FROM celeriac.ready WHERE role = r.role ORDER BY account LIMIT 1)
        UNION ALL
        SELECT next.account, accounts.n + 1 FROM accounts, LATERAL (
            SELECT account FROM celeriac.ready
            WHERE role = r.role AND account > accounts.account ORDER BY account LIMIT 1) AS next
        WHERE accounts.n < :most
    )
    SELECT coalesce(max(n), 0) AS n FROM accounts
) AS walk
""")

# A quarantined schedule does not run and counts as late, as it does in `watched.LATE`.
SCHEDULES = text("""
SELECT name, skips, CASE WHEN enabled
    THEN greatest(0, extract(epoch FROM statement_timestamp() - next_run_at)) ELSE 0 END AS late
FROM celeriac.scheduled_jobs ORDER BY name LIMIT :most
""")

BEATS = text("SELECT count(*) FROM celeriac.beats WHERE last_tick_at > statement_timestamp() - interval '1 minute'")

# For roles that keep no successes (`forgets`) some totals are unknown.
IN_ALL = text("""
SELECT r.role, coalesce(r.definition -> 'keep' IN ('null', '0'), false) AS forgets,
    t.enqueued, t.completed, t.failed, t.cancelled, t.retried, t.waits, t.wait_seconds, t.runs, t.run_seconds, b.passes
FROM celeriac.roles r LEFT JOIN celeriac.minutes_in_all t ON t.role = r.role
LEFT JOIN celeriac.batchers b ON b.role = r.role
""")

BEHIND = text("""
SELECT CAST(extract(epoch FROM statement_timestamp() - until) AS double precision) FROM celeriac.minutes_until
""")

FIRING = text("SELECT name, count(*) AS n FROM celeriac.alerts GROUP BY name")

# The first row is the oldest: ids are given in the order of the calls.
OUTBOX = text("""
SELECT CAST(count(*) OVER () AS integer) AS n, id, task ->> 'role' AS role,
    CAST(extract(epoch FROM statement_timestamp() - at) AS double precision) AS seconds
FROM (SELECT id, at, task FROM celeriac.intake ORDER BY id LIMIT :most) AS waiting ORDER BY id LIMIT 1
""")

# -1: the table has not been analyzed yet.
ESTIMATED = text("SELECT greatest(0, reltuples) FROM pg_class WHERE oid = to_regclass('celeriac.tasks')")

DEAD = text("""
SELECT relname, n_dead_tup / greatest(1.0, n_dead_tup + n_live_tup) AS ratio FROM pg_stat_user_tables
WHERE schemaname = 'celeriac' AND relname = ANY (CAST(:tables AS text[]))
""")

REVISION = text("SELECT version_num FROM celeriac.version")


def served(connection: Connection, wait: float) -> Sequence[RowMapping]:
    """Return by registered role: window, pause, objective (by default `wait` seconds), workers, slots, busy ones."""
    return connection.execute(SERVED, {"wait": wait}).mappings().all()


def recent(connection: Connection, most: int) -> Sequence[RowMapping]:
    """Return for each registered role how its last `most` tasks of this hour ended."""
    return connection.execute(RECENT, {"most": most} | lately(connection)).mappings().all()


def accounts_waiting(connection: Connection, most: int) -> dict[str, int]:
    """Return by registered role how many accounts have a ready task, counted to `most`."""
    return {row.role: row.n for row in connection.execute(WAITING, {"most": most})}


def schedules(connection: Connection, most: int) -> Sequence[Row[Any]]:
    """Return name, skips and lateness (seconds) of the first `most` schedules by name."""
    return connection.execute(SCHEDULES, {"most": most}).all()


def live_beats(connection: Connection) -> int:
    """Count the beats that ticked within a minute."""
    return int(connection.execute(BEATS).scalar_one())


def in_all(connection: Connection) -> Sequence[Row[Any]]:
    """Return for each registered role the totals of all counted minutes, and of its passes."""
    return connection.execute(IN_ALL).all()


def counts_behind(connection: Connection) -> float:
    """Return how many seconds ago the minutes that are completely counted end."""
    return float(connection.execute(BEHIND).scalar_one())


def firing_by_rule(connection: Connection) -> dict[str, int]:
    return {row.name: row.n for row in connection.execute(FIRING)}


def in_outbox(connection: Connection, most: int) -> Row[Any] | None:
    """Return how many tasks the outbox has (`n`, counted to `most`), and id, role and age of the oldest; or None."""
    return connection.execute(OUTBOX, {"most": most}).one_or_none()


def tasks_estimated(connection: Connection) -> float:
    """Return the planner's estimate of unfinished tasks; 0 before the first ANALYZE."""
    return float(connection.execute(ESTIMATED).scalar_one())


def dead_ratios(connection: Connection, tables: Iterable[str]) -> Mapping[str, float]:
    """Return by table of the engine the share of its rows that is dead (0 to 1)."""
    return {row.relname: row.ratio for row in connection.execute(DEAD, {"tables": [*tables]})}


def revisions(connection: Connection) -> Sequence[str]:
    """Return the revisions of the engine's schema."""
    return connection.execute(REVISION).scalars().all()
