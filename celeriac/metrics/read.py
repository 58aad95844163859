"""What SQL knows, read with a bound on each count: neither backlog nor history changes what a scrape costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, text

from celeriac.alerts import measure
from celeriac.insights import left_ready, rounds
from celeriac.metrics.catalogue import BY_NAME, COUNTED, OUTCOMES, STATES, TABLES
from celeriac.store.built_in import is_built_in

#: How many of a role's last are looked at for what they came to, of its accounts, of accounts and priorities for who
#: waits longest, and of the outbox.
RECENT_TASKS, ACCOUNTS, LEVELS, OUTBOX = 1_000, 100, 1_000, 1_000

#: Schedules are named by whoever writes them: this many are told of, by name.
SCHEDULES_TOLD = 200

PLACES = ("ready", "delayed", "locked", "parked", "awaiting", "claimed", "running", "stale")

# Each LIMIT has its index's ORDER BY, so that counting walks the index and nothing else.
ROOMS = text("""
SELECT r.role, coalesce(CAST(r.definition ->> 'window' AS integer), 0) AS "window",
    (SELECT count(*) FROM (
        SELECT FROM celeriac.ready WHERE role = r.role ORDER BY account LIMIT :most) AS c) AS ready,
    (SELECT count(*) FROM (
        SELECT FROM celeriac.later WHERE role = r.role ORDER BY due_at LIMIT :most) AS c) AS delayed,
    (SELECT count(*) FROM (
        SELECT FROM celeriac.behind WHERE role = r.role ORDER BY lock_key LIMIT :most) AS c) AS locked,
    (SELECT count(*) FROM (SELECT FROM celeriac.parked WHERE role = r.role LIMIT :most) AS c) AS parked,
    (SELECT count(*) FROM (SELECT FROM celeriac.barriers WHERE role = r.role LIMIT :most) AS c) AS awaiting,
    active.*
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT CAST(coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NULL), 0) AS integer) AS claimed,
        CAST(coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NOT NULL), 0) AS integer) AS running,
        CAST(coalesce(sum(cardinality(ids)) FILTER (WHERE heartbeat_at < statement_timestamp()
            - coalesce(CAST(r.definition ->> 'stale_after' AS double precision), 600) * interval '1 second'), 0)
            AS integer) AS stale
    FROM celeriac.tickets WHERE role = r.role) AS active
""")

SERVED = text("""
WITH busy AS (
    SELECT worker_id, count(DISTINCT worker_pid) AS slots FROM celeriac.tickets
    WHERE worker_id IS NOT NULL GROUP BY worker_id
)
SELECT r.role, coalesce(CAST(r.definition ->> 'window' AS integer), 0) AS "window", r.paused, live.*,
    coalesce(CAST(r.definition ->> 'wait_objective' AS double precision), :wait) AS objective,
    (SELECT CAST(extract(epoch FROM statement_timestamp() - min(started_at)) AS double precision)
        FROM celeriac.tickets WHERE role = r.role) AS running_oldest
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE fresh AND status = 'active') AS active,
        count(*) FILTER (WHERE fresh AND status = 'draining') AS draining,
        count(*) FILTER (WHERE NOT fresh) AS silent,
        CAST(extract(epoch FROM statement_timestamp() - min(since)) AS double precision) AS silence,
        coalesce(sum(concurrency) FILTER (WHERE fresh AND status = 'active'), 0) AS slots,
        coalesce(sum(least(busy.slots, concurrency)) FILTER (WHERE fresh AND status = 'active'), 0) AS busy
    FROM (
        SELECT worker_id, status, concurrency, greatest(last_heartbeat_at, pg_postmaster_start_time()) AS since,
            last_heartbeat_at > statement_timestamp() - interval '2 minutes' AS fresh
        FROM celeriac.workers
        WHERE status <> 'stopped' AND queues ? coalesce(r.definition ->> 'queue', r.role)
            AND last_heartbeat_at > statement_timestamp() - interval '1 hour'
    ) AS w LEFT JOIN busy USING (worker_id)
) AS live
""")

RECENT = text("""
SELECT r.role, newest.completed + coalesce(counted.completed, 0) AS completed,
    newest.failed + coalesce(counted.failed, 0) AS failed, newest.cancelled
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'completed' AND NOT celeriac.is_counted(r.definition, status))
            AS completed,
        count(*) FILTER (WHERE status = 'failed' AND NOT celeriac.is_counted(r.definition, status)) AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM (
        SELECT status FROM celeriac.history
        WHERE role = r.role AND completed_at > statement_timestamp() - interval '1 hour'
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

# One that is quarantined does not run, and is late as well: `alerts.measure.LATE` says so too.
SCHEDULES = text("""
SELECT name, skips, CASE WHEN enabled
    THEN greatest(0, extract(epoch FROM statement_timestamp() - next_run_at)) ELSE 0 END AS late
FROM celeriac.scheduled_jobs ORDER BY name LIMIT :most
""")

BEATS = text("SELECT count(*) FROM celeriac.beats WHERE last_tick_at > statement_timestamp() - interval '1 minute'")

# Of roles that keep no successes (`forgets`) nobody knows it all.
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

OUTBOX_TASKS = text("SELECT count(*) FROM (SELECT id FROM celeriac.intake ORDER BY id LIMIT :most) AS waiting")

# -1: nobody has counted them yet.
ESTIMATED = text("SELECT greatest(0, reltuples) FROM pg_class WHERE oid = to_regclass('celeriac.tasks')")

DEAD = text("""
SELECT relname, n_dead_tup / greatest(1.0, n_dead_tup + n_live_tup) AS ratio FROM pg_stat_user_tables
WHERE schemaname = 'celeriac' AND relname = ANY (CAST(:tables AS text[]))
""")

REVISION = text("SELECT version_num FROM celeriac.version")


@dataclass
class Samples:
    """By metric, each set of its labels' values and what it is at; of a histogram its counts, and their sum."""

    values: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    histograms: dict[str, dict[tuple[str, ...], tuple[Sequence[int], float]]] = field(default_factory=dict)

    def put(self, name: str, value: Any, *labels: str) -> None:
        metric = BY_NAME[name]
        assert len(labels) == len(metric.labels), name
        self.values.setdefault(name, {})[labels] = float(value or 0)

    def count(self, name: str, counts: Sequence[int] | None, seconds: float | None, *labels: str) -> None:
        """By the metric's bounds, and one more; None of nothing yet."""
        metric = BY_NAME[name]
        assert len(labels) == len(metric.labels), name
        self.histograms.setdefault(name, {})[labels] = (counts or [0] * (len(metric.bounds) + 1), seconds or 0.0)

    def zeros(self, name: str, labels: Iterable[str], *before: str) -> None:
        """Where nothing is told yet."""
        for label in labels:
            self.values.setdefault(name, {}).setdefault((*before, label), 0.0)


def read(connection: Connection, rules: Iterable[str], wait: float) -> Samples:
    """`rules`: the names of those that may fire. `wait`: the objective (seconds) of roles without one of their own.

    In a transaction that reads, by look-ups.
    """
    samples = Samples()
    roles = _rooms(connection, samples)
    _served(connection, samples, roles, wait)
    _ended(connection, samples, roles)
    _in_all(connection, samples, roles)
    _schedules(connection, samples)
    _whole(connection, samples)
    firing: Mapping[str, int] = {row.name: row.n for row in connection.execute(FIRING)}
    for name in rules:
        samples.put("alerts_firing", firing.get(name, 0), name)
    return samples


def _rooms(connection: Connection, samples: Samples) -> set[str]:
    """The roles that are told of: those that are registered, and of the built-in ones those with work."""
    rows = [row._mapping for row in connection.execute(ROOMS, {"most": COUNTED + 1})]
    roles = {row["role"]: row for row in rows if not is_built_in(row["role"]) or any(map(row.get, PLACES))}
    for role, row in roles.items():
        for place in PLACES:
            samples.put(f"tasks_{place}", row[place], role)
        samples.put("slots_free", max(0, row["window"] - row["claimed"] - row["running"]), role)
    return set(roles)


def _served(connection: Connection, samples: Samples, roles: set[str], wait: float) -> None:
    for row in connection.execute(SERVED, {"wait": wait}).mappings():
        if (role := row["role"]) in roles:
            samples.put("wait_objective_seconds", row["objective"], role)
            samples.put("window", row["window"], role)
            samples.put("role_paused", row["paused"], role)
            samples.put("running_oldest_seconds", row["running_oldest"], role)
            samples.put("worker_silence_seconds", row["silence"], role)
            samples.put("worker_slots", row["slots"], role)
            samples.put("workers_idle", row["slots"] - row["busy"], role)
            for state in STATES:
                samples.put("workers", row[state], role, state)


def _ended(connection: Connection, samples: Samples, roles: set[str]) -> None:
    for row in connection.execute(RECENT, {"most": RECENT_TASKS}).mappings():
        for outcome in OUTCOMES if row["role"] in roles else ():
            samples.put("recent_tasks", row[outcome], row["role"], outcome)
    waiting = {row.role: row.n for row in connection.execute(WAITING, {"most": ACCOUNTS})}
    trouble = connection.execute(measure.TROUBLE, {"most": measure.MOST_EVENTS}).all()
    lost, late = ({row.role: row[n] for row in trouble} for n in (1, 2))
    lags = rounds.lags(connection)
    oldest = {row.role: row.seconds for row in connection.execute(measure.OLDEST, {"most": LEVELS})}
    by_role = {
        "accounts_waiting": waiting, "tickets_lost": lost, "late_finishes": late, "fairness_lag_rounds": lags,
        "oldest_ready_seconds": oldest, "tasks_left_ready": left_ready.left(connection, oldest, COUNTED + 1),
    }  # fmt: skip
    for name, values in by_role.items():
        for role in roles:
            samples.put(name, values.get(role, 0), role)


def _in_all(connection: Connection, samples: Samples, roles: set[str]) -> None:
    """What was counted by the minute, and by the passes themselves, ever since."""
    for row in connection.execute(IN_ALL):
        if (role := row.role) in roles:
            for outcome in OUTCOMES:
                samples.put("tasks_ended_total", getattr(row, outcome), role, outcome)
            samples.put("tasks_retried_total", row.retried, role)
            samples.put("passes_total", row.passes, role)
            if not row.forgets:
                samples.put("tasks_enqueued_total", row.enqueued, role)
                samples.count("wait_seconds", row.waits, row.wait_seconds, role)
                samples.count("run_seconds", row.runs, row.run_seconds, role)
    samples.put("counts_behind_seconds", connection.execute(BEHIND).scalar_one())


def _schedules(connection: Connection, samples: Samples) -> None:
    for row in connection.execute(SCHEDULES, {"most": SCHEDULES_TOLD}):
        samples.put("schedule_lateness_seconds", row.late, row.name)
        samples.put("schedule_skips_total", row.skips, row.name)
    samples.put("beats", connection.execute(BEATS).scalar_one())
    samples.put("beat_tick_age_seconds", connection.execute(measure.BEAT).scalar_one_or_none())


def _whole(connection: Connection, samples: Samples) -> None:
    samples.put("dead_letters", connection.execute(measure.LETTERS, {"most": measure.MOST_LETTERS}).scalar_one())
    samples.put("outbox_tasks", connection.execute(OUTBOX_TASKS, {"most": OUTBOX}).scalar_one())
    samples.put("tasks_estimated", connection.execute(ESTIMATED).scalar_one())
    samples.put("oldest_transaction_seconds", connection.execute(measure.TRANSACTION).scalar_one())
    for table, ratio in _of_tables(connection):
        samples.put("table_dead_ratio", ratio, table)
    for revision in connection.execute(REVISION).scalars():
        samples.put("schema_info", 1, revision)


def _of_tables(connection: Connection) -> Iterator[tuple[str, float]]:
    ratios = {row.relname: row.ratio for row in connection.execute(DEAD, {"tables": list(TABLES)})}
    return ((table, ratios.get(table, 0.0)) for table in TABLES)
