"""What the rules compare: values of roles, schedules, workers, Redis and Postgres.

Each group is read by itself. One that cannot be read leaves its alerts as they are: nobody knows better.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from celeriac.alerts.rules import Measured, Rule, evaluate, measure_of
from celeriac.insights import left_ready, rounds
from celeriac.store.plans import lookups

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: A rate says nothing of fewer tasks than this.
SAMPLES = 20

#: What waits is counted to here in each room, or to one more than the setting, at most to a million; and so many of the
#: newest tell how many fail.
COUNTED, MOST_COUNTED, NEWEST = 10_000, 1_000_000, 10_000

# `unserved`: a task that waits for its time becomes ready when it is due, where somebody looks. Of a role that keeps no
# successes its workers have counted these by minutes.
ROLES = text("""
SELECT r.role,
    active.claimed + rooms.ready + rooms.later + rooms.behind + rooms.parked + rooms.members AS queued,
    CASE WHEN hour.completed + hour.failed > :samples
        THEN CAST(hour.failed AS double precision) / (hour.completed + hour.failed) END AS failed_rate,
    active.longest_running,
    CASE WHEN NOT r.paused AND NOT EXISTS (
        SELECT FROM celeriac.workers
        WHERE status = 'active' AND queues ? coalesce(r.definition ->> 'queue', r.role)
            AND last_heartbeat_at > statement_timestamp() - interval '2 minutes')
        THEN CAST(rooms.ready + (
            SELECT count(*) FROM (
                SELECT FROM celeriac.later WHERE role = r.role AND due_at <= statement_timestamp()
                ORDER BY due_at LIMIT :most) AS c) AS double precision) END AS unserved
FROM celeriac.roles r
CROSS JOIN LATERAL (
    SELECT
        (SELECT count(*) FROM (
            SELECT FROM celeriac.ready WHERE role = r.role ORDER BY account LIMIT :most) AS c) AS ready,
        (SELECT count(*) FROM (
            SELECT FROM celeriac.later WHERE role = r.role ORDER BY due_at LIMIT :most) AS c) AS later,
        (SELECT count(*) FROM (
            SELECT FROM celeriac.behind WHERE role = r.role ORDER BY lock_key LIMIT :most) AS c) AS behind,
        (SELECT count(*) FROM (SELECT FROM celeriac.parked WHERE role = r.role LIMIT :most) AS c) AS parked,
        (SELECT count(*) FROM (SELECT FROM celeriac.barriers WHERE role = r.role LIMIT :most) AS c) AS members
) AS rooms
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(ids)) FILTER (WHERE worker_id IS NULL), 0) AS claimed,
        CAST(extract(epoch FROM statement_timestamp() - min(started_at)) AS double precision) AS longest_running
    FROM celeriac.tickets WHERE role = r.role
) AS active
CROSS JOIN LATERAL (
    SELECT newest.failed + coalesce(counted.failed, 0) AS failed,
        newest.completed + coalesce(counted.completed, 0) AS completed
    FROM (
        SELECT count(*) FILTER (WHERE status = 'completed' AND NOT celeriac.is_counted(r.definition, status))
                AS completed,
            count(*) FILTER (WHERE status = 'failed' AND NOT celeriac.is_counted(r.definition, status)) AS failed,
            CASE WHEN count(*) = :newest THEN min(completed_at) END AS since
        FROM (
            SELECT status, completed_at FROM celeriac.history
            WHERE role = r.role AND completed_at > statement_timestamp() - interval '1 hour'
            ORDER BY completed_at DESC LIMIT :newest) AS h
    ) AS newest CROSS JOIN LATERAL (
        SELECT CAST(sum(completed) AS bigint) AS completed,
            CAST(sum(failed) FILTER (WHERE r.definition -> 'keep' = '0') AS bigint) AS failed
        FROM celeriac.outcomes
        WHERE role = r.role AND r.definition -> 'keep' IN ('null', '0')
            AND minute > greatest(statement_timestamp() - interval '1 hour', newest.since - interval '1 minute')
    ) AS counted
) AS hour
""")

#: Accounts and priorities whose oldest entry is looked at, of each role: by name those that come first.
LEVELS = 10_000

# INVARIANT: one descent an account and priority, to its first entry, which is its oldest.
OLDEST = text("""
SELECT r.role, CAST(extract(epoch FROM statement_timestamp() - oldest.due_at) AS double precision) AS seconds,
    CAST(r.definition ->> 'wait_objective' AS double precision) AS objective
FROM celeriac.roles r CROSS JOIN LATERAL (
    WITH RECURSIVE levels AS (
        (SELECT account, priority, due_at, 1 AS n FROM celeriac.ready
            WHERE role = r.role ORDER BY account, priority DESC, due_at LIMIT 1)
        UNION ALL
        SELECT next.*, levels.n + 1 FROM levels, LATERAL (
            (SELECT account, priority, due_at FROM celeriac.ready
                WHERE role = r.role AND account = levels.account AND priority < levels.priority
                ORDER BY account, priority DESC, due_at LIMIT 1)
            UNION ALL
            (SELECT account, priority, due_at FROM celeriac.ready
                WHERE role = r.role AND account > levels.account ORDER BY account, priority DESC, due_at LIMIT 1)
            LIMIT 1) AS next
        WHERE levels.n < :most
    )
    SELECT min(due_at) AS due_at FROM levels
) AS oldest
WHERE oldest.due_at IS NOT NULL AND NOT r.paused
""")

LATE = text("""
SELECT name, CAST(extract(epoch FROM statement_timestamp() - next_run_at) AS double precision) AS late
FROM celeriac.scheduled_jobs WHERE enabled AND next_run_at < statement_timestamp()
""")

SKIPPED = text("""
SELECT name, skips FROM celeriac.scheduled_jobs
WHERE enabled AND last_skip_at > statement_timestamp() - interval '1 hour'
""")

# A beat that ends takes its row with it: then what its schedules ran last tells. While Postgres was down nobody could
# tick.
BEAT = text("""
SELECT CAST(extract(epoch FROM statement_timestamp() - greatest(pg_postmaster_start_time(), coalesce(
    (SELECT max(last_tick_at) FROM celeriac.beats), max(last_run_at), min(created_at)))) AS double precision) AS silence
FROM celeriac.scheduled_jobs WHERE enabled AND quarantined IS NULL HAVING count(*) > 0
""")

#: A worker that is silent for so long (seconds) beyond the threshold does not come back: its alert is over. And so many
#: are told of at once.
FORGOTTEN, MOST_WORKERS = 3600.0, 100

HEARTBEATS = text("""
SELECT worker_id, CAST(extract(epoch FROM statement_timestamp() - since) AS double precision) AS age FROM (
    SELECT worker_id, greatest(last_heartbeat_at, pg_postmaster_start_time()) AS since
    FROM celeriac.workers WHERE status <> 'stopped'
        AND last_heartbeat_at > statement_timestamp() - :late * interval '1 second'
            - :forgotten * interval '1 second'
) AS w
WHERE since < statement_timestamp() - :late * interval '1 second'
ORDER BY since DESC LIMIT :most
""")

#: Events of any kind are looked at back to here, as their index knows no kind: one more than the setting may be.
MOST_EVENTS = 10_001

TROUBLE = text("""
SELECT role, count(*) FILTER (WHERE kind = 'ticket_lost') AS lost, count(*) FILTER (WHERE kind = 'late_finish') AS late
FROM (
    SELECT role, kind FROM celeriac.task_events WHERE at > statement_timestamp() - interval '15 minutes'
    ORDER BY at DESC LIMIT :most) AS newest
WHERE kind IN ('ticket_lost', 'late_finish') GROUP BY role
""")

# Those that hold a snapshot or have written: what they may still see is not vacuumed. Others' can be seen only by who
# may (pg_read_all_stats).
TRANSACTION = text("""
SELECT CAST(extract(epoch FROM statement_timestamp() - least(
    (SELECT min(xact_start) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
            AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)),
    (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database())
)) AS double precision) AS age
""")

#: Dead letters are counted to here: one more than the setting may be.
MOST_LETTERS = 1_001

LETTERS = text("SELECT count(*) FROM (SELECT id FROM celeriac.dead_letters ORDER BY id LIMIT :most) AS letters")

Group = Callable[["Celeriac", Connection], Iterable[Measured]]


def _roles(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    most = min(max(COUNTED, int(app.settings.alert_queue_depth)), MOST_COUNTED) + 1
    with lookups(connection):
        asked = {"samples": SAMPLES, "most": most, "newest": NEWEST}
        rows = connection.execute(ROLES, asked).mappings().all()
    names = ("queued", "failed_rate", "longest_running", "unserved")
    return [Measured(name, row["role"], row[name]) for row in rows for name in names if row[name] is not None]


def _oldest(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        rows = connection.execute(OLDEST, {"most": LEVELS}).all()
        left = left_ready.left(connection, {row.role: row.seconds for row in rows}, COUNTED)
    yield from (Measured("oldest_ready", *row) for row in rows)
    yield from (Measured("left_ready", *one) for one in left.items())


def _schedules(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    yield from (Measured("late", *row) for row in connection.execute(LATE))
    yield from (Measured("skipped", *row) for row in connection.execute(SKIPPED))
    yield from (Measured("beat_silence", "beat", silence) for silence in connection.execute(BEAT).scalars())


def _workers(app: Celeriac, connection: Connection) -> Iterable[Measured]:
    asked = {"late": app.settings.alert_heartbeat, "forgotten": FORGOTTEN, "most": MOST_WORKERS}
    return [Measured("heartbeat_age", *row) for row in connection.execute(HEARTBEATS, asked)]


def _redis(app: Celeriac, _: Connection) -> Iterable[Measured]:
    """Whether it answers this process: others may be better off."""
    return [Measured("redis_silent", "Redis", 0.0 if app.publisher.answers() else 1.0)]


def _trouble(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        rows = connection.execute(TROUBLE, {"most": MOST_EVENTS}).all()
    yield from (Measured("lost_tickets", row.role, row.lost) for row in rows)
    yield from (Measured("late_finishes", row.role, row.late) for row in rows)


def _fairness(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        return [Measured("fairness_lag", *one) for one in rounds.lags(connection).items()]


def _postgres(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    ages = connection.execute(TRANSACTION).scalars()
    return [Measured("transaction_age", "Postgres", age) for age in ages if age is not None]


def _letters(_: Celeriac, connection: Connection) -> Iterable[Measured]:
    with lookups(connection):
        n = connection.execute(LETTERS, {"most": MOST_LETTERS}).scalar_one()
    return [Measured("letters", "plain Celery", n)]


#: What reads which measures.
GROUPS: Mapping[Group, Sequence[str]] = {
    _roles: ("queued", "failed_rate", "longest_running", "unserved"),
    _oldest: ("oldest_ready", "left_ready"),
    _schedules: ("late", "skipped", "beat_silence"),
    _workers: ("heartbeat_age",),
    _redis: ("redis_silent",),
    _trouble: ("lost_tickets", "late_finishes"),
    _fairness: ("fairness_lag",),
    _postgres: ("transaction_age",),
    _letters: ("letters",),
}


def measure(app: Celeriac, connection: Connection, rules: Iterable[Rule]) -> dict[str, list[Measured]]:
    """By measure, the values that these rules need; what could not be read is absent. Within a transaction."""
    wanted = {measure_of(rule) for rule in rules}
    measured: dict[str, list[Measured]] = {}
    for group, names in GROUPS.items():
        if wanted & {*names} and (values := _read(app, connection, group)) is not None:
            measured |= {name: [one for one in values if one.measure == name] for name in names}
    for rule in rules:
        if not isinstance(rule.measure, str) and (values := _read(app, connection, _of_application(rule))) is not None:
            measured[rule.name] = values
    return measured


def _of_application(rule: Rule) -> Group:
    def read(app: Celeriac, connection: Connection) -> Iterable[Measured]:
        """Raises for what could not be judged or written later on, with all the others."""
        assert not isinstance(rule.measure, str)
        values = [Measured(rule.name, subject, float(value)) for subject, value in rule.measure(connection).items()]
        above = evaluate([rule], values, app.settings)
        if not all(_is_told_of(one.subject) and math.isfinite(one.value) for one in values):
            raise ValueError(f"the measure of {rule.name!r}: give each subject, a short text, a finite number")
        if not all(_is_text(one.says) for one in above):
            raise ValueError(f"the sentence of {rule.name!r} is no text that Postgres takes")
        return values

    return read


def _is_told_of(subject: object) -> bool:
    """Whether it fits the key of an alert."""
    return isinstance(subject, str) and len(subject) <= 500 and _is_text(subject)


def _is_text(said: str) -> bool:
    return "\0" not in said and not any("\ud800" <= letter <= "\udfff" for letter in said)


def _read(app: Celeriac, connection: Connection, group: Group) -> list[Measured] | None:
    """None, and a line in the log, for one that cannot be read. Raises what says that this connection is lost.

    An application's function may speak with other databases, whose errors look the same.
    """
    connection.exec_driver_sql("SAVEPOINT measured")
    try:
        values = list(group(app, connection))
    except Exception:
        if connection.invalidated:
            raise
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT measured")
        logger.exception("What alerts are about could not be read")
        return None
    connection.exec_driver_sql("RELEASE SAVEPOINT measured")
    return values
