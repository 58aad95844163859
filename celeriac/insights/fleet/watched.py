"""Read the figures that alerts compare and metrics export; each read is bounded, however much waits or has happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, RowMapping, text

from celeriac.insights.fleet.condition import HELD_BACK
from celeriac.insights.fleet.resources import BUSY, HELD, is_true, number
from celeriac.insights.tasks.clock import LATELY, lately
from celeriac.insights.tasks.counting import oldest_in, roles_in
from celeriac.store.states import GONE

#: Maximum number of roles with work that are read, by name; unregistered ones are among them.
MOST_ROLES = 1_000

#: For how many pairs of account and priority of each role, the first by name, the oldest entry is read.
LEVELS = 10_000

#: Maximum number of events read (the newest of any kind: their index has none): the setting's maximum and one.
MOST_EVENTS = 10_001

#: The number to which dead letters are counted: one more than the setting may be.
MOST_LETTERS = 1_001

#: Seconds beyond the threshold after which a silent worker is given up, and the maximum number of workers returned.
FORGOTTEN, MOST_WORKERS = 3600.0, 100

# `unserved` counts due tasks of `later`, as a worker's check makes them ready. Unkept successes are in `outcomes`.
ROLES = text(f"""
{roles_in("tasks", "busy")}, known AS MATERIALIZED (
    SELECT role, definition, paused, true AS is_registered FROM celeriac.roles
    UNION ALL
    SELECT role, '{{}}', false, false FROM (SELECT role FROM busy LIMIT :roles) AS b
    WHERE NOT EXISTS (SELECT FROM celeriac.roles r WHERE r.role = b.role)
)
SELECT r.role, r.is_registered, coalesce(r.definition ->> 'queue', r.role) AS queue,
    b.claimed + b.ready + b.later + b.behind_lock + b.parked + b.members AS queued,
    CASE WHEN hour.completed + hour.failed > :samples
        THEN CAST(hour.failed AS double precision) / (hour.completed + hour.failed) END AS failed_rate,
    b.longest_running,
    CASE WHEN NOT r.paused AND NOT EXISTS (
        SELECT FROM celeriac.workers
        WHERE status = 'active' AND queues ? coalesce(r.definition ->> 'queue', r.role)
            AND celeriac.is_heard(last_heartbeat_at))
        THEN CAST(b.ready + b.due + b.claimed AS double precision) END AS unserved
FROM known r
CROSS JOIN LATERAL celeriac.backlog(r.role, :most) AS b
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
            WHERE role = r.role AND {LATELY}
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

# INVARIANT: one descent for each account and priority, to its first entry, which is its oldest.
OLDEST = text(f"""
SELECT r.role, CAST(extract(epoch FROM statement_timestamp() - oldest.due_at) AS double precision) AS seconds,
    CAST(r.definition ->> 'wait_objective' AS double precision) AS objective
FROM celeriac.roles r CROSS JOIN LATERAL (
    {oldest_in("account, priority, due_at", "most")}
    SELECT min(due_at) AS due_at FROM levels
) AS oldest
WHERE oldest.due_at IS NOT NULL AND NOT r.paused
""")

# `is_passed_by`: a beat that should run it has run another one since it was due. Each beat runs those of the API.
LATE = text("""
SELECT name, CAST(extract(epoch FROM statement_timestamp() - next_run_at) AS double precision) AS late, quarantined,
    owner, next_run_at < CASE WHEN owner = 'api' THEN max(last_run_at) OVER ()
        ELSE max(last_run_at) OVER (PARTITION BY owner) END AS is_passed_by
FROM celeriac.scheduled_jobs WHERE enabled
""")

# `overlaps`: its last task is not over yet.
SKIPPED = text("""
SELECT name, skips, last_skip_at, last_task_id,
    last_task_id IS NOT NULL AND EXISTS (
        SELECT FROM celeriac.tasks WHERE task_id = s.last_task_id LIMIT 1) AS overlaps
FROM celeriac.scheduled_jobs s
WHERE enabled AND last_skip_at > statement_timestamp() - interval '1 hour'
""")

# A beat that ends deletes its row, so its schedules' last runs count. No beat can tick while Postgres is down.
BEAT = text("""
SELECT CAST(extract(epoch FROM statement_timestamp() - greatest(celeriac.up_since(), coalesce(
    (SELECT max(last_tick_at) FROM celeriac.beats), max(last_run_at), min(created_at)))) AS double precision) AS silence
FROM celeriac.scheduled_jobs WHERE enabled AND quarantined IS NULL HAVING count(*) > 0
""")

# The silent worker of this queue that was heard last.
LAST_HEARD = text("""
SELECT worker_id, CAST(extract(epoch FROM statement_timestamp() - last_heartbeat_at) AS double precision) AS seconds
FROM celeriac.workers WHERE queues ? :queue AND status <> 'stopped' ORDER BY last_heartbeat_at DESC LIMIT 1
""")

HEARTBEATS = text("""
SELECT worker_id, CAST(extract(epoch FROM statement_timestamp() - since) AS double precision) AS age,
    (SELECT CAST(coalesce(sum(cardinality(ids)), 0) AS integer) FROM celeriac.tickets k
        WHERE k.worker_id = w.worker_id) AS tasks
FROM (
    SELECT worker_id, greatest(last_heartbeat_at, celeriac.up_since()) AS since
    FROM celeriac.workers WHERE status <> 'stopped'
        AND last_heartbeat_at > statement_timestamp() - :late * interval '1 second'
            - :forgotten * interval '1 second'
) AS w
WHERE since < statement_timestamp() - :late * interval '1 second'
ORDER BY since DESC LIMIT :most
""")

# The worker's own heartbeat carries `drain_overdue`; it would not if the worker had ended.
DRAINING_ON = text(f"""
SELECT worker_id, {number("drain_overdue")}
    + CAST(extract(epoch FROM statement_timestamp() - last_heartbeat_at) AS double precision) AS overdue
FROM celeriac.workers
WHERE status = 'draining' AND jsonb_typeof(resources -> 'drain_overdue') = 'number'
    AND last_heartbeat_at > statement_timestamp() - :forgotten * interval '1 second'
ORDER BY last_heartbeat_at DESC LIMIT :most
""")

TROUBLE = text("""
SELECT role, count(*) FILTER (WHERE kind = 'ticket_lost') AS lost, count(*) FILTER (WHERE kind = 'late_finish') AS late
FROM (
    SELECT role, kind FROM celeriac.task_events WHERE at > statement_timestamp() - interval '15 minutes'
    ORDER BY at DESC LIMIT :most) AS newest
WHERE kind IN ('ticket_lost', 'late_finish') GROUP BY role
""")

# Vacuum keeps what transactions with a snapshot or an id may see. Seeing other logins' takes pg_read_all_stats.
TRANSACTION = text(f"""
WITH {HELD_BACK}
SELECT greatest((SELECT max(seconds) FROM held_back), CAST(extract(epoch FROM statement_timestamp() - least(
    (SELECT min(xact_start) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
            AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)),
    (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database())
)) AS double precision)) AS age
""")

LETTERS = text("SELECT count(*) FROM (SELECT id FROM celeriac.dead_letters ORDER BY id LIMIT :most) AS letters")

#: A pass comes at least once in so long (seconds); for a role that is not prompt, once in two of its periods.
PATIENCE = 60.0

#: Good reasons for a pass to claim nothing, in the words of `dispatch.passes`.
GOOD_REASONS = (
    "the role is paused", "the window is full", "the rate limit is reached",
    "every account with work is paused or at its cap",
)  # fmt: skip

# A worker that backs off takes nothing new. A pass that is switched off at beat is taken as intended, for all queues.
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


def of_roles(connection: Connection, *, samples: int, most: int, newest: int) -> Sequence[RowMapping]:
    """Return for each role that is registered or has work: how many tasks are queued (counted to `most` in each state
    table), how many wait without a worker, how long the longest has run, and the share of failures among the `newest`
    outcomes of the last hour, None if there are no more than `samples`.
    """
    parameters = {"samples": samples, "most": most, "newest": newest, "roles": MOST_ROLES} | lately(connection)
    return connection.execute(ROLES, parameters).mappings().all()


def oldest_ready(connection: Connection, levels: int = LEVELS) -> Sequence[Row[Any]]:
    """Return for each unpaused role the seconds since its longest-waiting ready task was due, and its objective."""
    return connection.execute(OLDEST, {"most": levels}).all()


def late_schedules(connection: Connection) -> Sequence[Row[Any]]:
    """Return name and lateness (seconds) of each late schedule, why it cannot run (`quarantined`), and whose it is."""
    return [row for row in connection.execute(LATE) if row.late > 0]


def skipping_schedules(connection: Connection) -> Sequence[Row[Any]]:
    """Return schedules that skipped an instant in the last hour. `overlaps`: the last task is unfinished."""
    return connection.execute(SKIPPED).all()


def beat_silence(connection: Connection) -> float | None:
    """Return the seconds since a beat last ticked; None if no schedule is on."""
    return connection.execute(BEAT).scalar_one_or_none()


def last_heard(connection: Connection, queue: str) -> Row[Any] | None:
    """Return the unstopped worker of this queue that was heard last, and how many seconds ago that was."""
    return connection.execute(LAST_HEARD, {"queue": queue}).one_or_none()


def silent_workers(connection: Connection, late: float) -> Sequence[Row[Any]]:
    """Return workers that have been silent for over `late` seconds: each with its silence and its number of tasks."""
    return connection.execute(HEARTBEATS, {"late": late, "forgotten": FORGOTTEN, "most": MOST_WORKERS}).all()


def draining_on(connection: Connection) -> Sequence[Row[Any]]:
    """Return workers whose drain does not end: the worker, and the seconds since it should have ended."""
    return connection.execute(DRAINING_ON, {"forgotten": GONE, "most": MOST_WORKERS}).all()


def trouble(connection: Connection) -> Sequence[Row[Any]]:
    """Return role, lost tickets (`lost`) and refused outcomes (`late`) of the last 15 minutes."""
    return connection.execute(TROUBLE, {"most": MOST_EVENTS}).all()


def oldest_transaction(connection: Connection) -> float | None:
    """Return the age (seconds) of the oldest transaction that keeps vacuum from dead rows; None if there is none."""
    return connection.execute(TRANSACTION).scalar_one()


def letters(connection: Connection) -> int:
    """Count the dead letters, to `MOST_LETTERS`."""
    return int(connection.execute(LETTERS, {"most": MOST_LETTERS}).scalar_one())


def left_ready(connection: Connection, oldest: Mapping[str, float], most: int) -> dict[str, int]:
    """Return by role how many ready tasks nobody claims, counted to `most`, by look-ups. `oldest`: for how many seconds
    the role's oldest could have started; a task that has just come is not counted.
    """
    parameters = {"patience": PATIENCE, "good": list(GOOD_REASONS), "most": most}
    rows = connection.execute(LEFT, parameters).all()
    return {row.role: row.n for row in rows if oldest.get(row.role, 0.0) > row.seconds}
