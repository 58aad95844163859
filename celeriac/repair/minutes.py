"""Minutes: counts of what happened to each role's tasks in every minute, taken afterwards from the remaining rows.

No statement on a task's way writes a counter for this. The sweep follows behind a watermark, `minutes_until`, which
moves in the same transaction as the counts before it: a minute is counted once, whichever process dies at whatever
time. The counts:

enqueued    tasks by their time of creation, found by their ids, if their transaction commits within `LAG` seconds.
            Missed are those whose role keeps them so briefly that they are pruned first, a minute or so later.
started     by when the last attempt began, of tasks that have ended since: a running task is counted when it ends.
completed   by when the outcome was written; `failed` and `cancelled` as well. A task that is retried by hand before it
            was counted has no outcome any more.
retried     attempts after which another was to follow: neither losses with a worker, nor snoozes.
waits       from when a task was due to when its ticket began, of the last attempt, in the minute it ended.
runs        from there to its outcome, of what completed or failed; tasks that shared a ticket each count its mean,
            unless their worker's slots share a process: there they run side by side.

A role that keeps no successes leaves only its workers' own counts: `completed` is that, and if it keeps nothing
`failed` as well. What was enqueued or started, and how long tasks waited and ran, is unknown (NULL).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.insights.fleet.resources import is_sharing
from celeriac.insights.history.histogram import BOUNDS, counts
from celeriac.repair.app import RepairApp
from celeriac.repair.prune import MINUTES_KEPT
from celeriac.store.connections import Database
from celeriac.store.plans import lookups
from celeriac.store.states import CANCELLED

#: Seconds after which open writes are taken to be committed.
LAG = 15.0

#: Maximum number of minutes, and of batches of task ids, that a sweep counts; and the number of ids in a batch.
MINUTES, BATCHES, BATCH = 120, 100, 50_000

MINUTE = timedelta(minutes=1)

# INVARIANT: the process that has locked the row counts, until the end of its transaction; others find none. Minutes so
# old that they would be pruned are skipped.
TAKE = text("""
SELECT greatest(until, date_trunc('minute', statement_timestamp()) - :days * interval '1 day') AS since, task, seen,
    seen_at
FROM celeriac.minutes_until WHERE seen_at <= statement_timestamp() - :lag * interval '1 second'
FOR UPDATE SKIP LOCKED
""")

SEE = text("""
UPDATE celeriac.minutes_until
SET seen = coalesce(pg_sequence_last_value('celeriac.tasks_id_seq'), 0), seen_at = statement_timestamp()
""")

# A task keeps its id and its time of creation in whichever table it is.
ENQUEUED = text("""
WITH created AS (
    SELECT role, date_trunc('minute', created_at) AS minute FROM celeriac.tasks WHERE id > :after AND id <= :upto
    UNION ALL
    SELECT role, date_trunc('minute', created_at) FROM celeriac.created_between(:after, :upto)
), known AS MATERIALIZED (
    SELECT role, minute, count(*) AS n FROM created GROUP BY role, minute ORDER BY role, minute
), told AS (
    INSERT INTO celeriac.minutes AS m (role, minute, enqueued)
    SELECT role, minute, n FROM known WHERE role <> ALL (CAST(:forgets AS text[]))
    ON CONFLICT (role, minute) DO UPDATE SET enqueued = m.enqueued + excluded.enqueued
), in_all AS (
    INSERT INTO celeriac.minutes_in_all AS t (role, enqueued)
    SELECT role, sum(n) FROM known WHERE role <> ALL (CAST(:forgets AS text[])) GROUP BY role ORDER BY role
    ON CONFLICT (role) DO UPDATE SET enqueued = t.enqueued + excluded.enqueued
), moved AS (
    UPDATE celeriac.minutes_until SET task = :upto
)
SELECT count(*) FROM known
""")

FORGETS = text("SELECT role FROM celeriac.roles WHERE definition -> 'keep' IN ('null', '0')")

_MIDNIGHT = "date_trunc('day', CAST(:since AS timestamptz) AT TIME ZONE 'UTC')"

# Immutable functions let the planner know the day, so that it locks that partition alone.
_OF_DAY = f"""completed_at >= {_MIDNIGHT} AT TIME ZONE 'UTC'
            AND completed_at < ({_MIDNIGHT} + interval '1 day') AT TIME ZONE 'UTC'"""

# INVARIANT: rows that the workers count themselves (`COUNTED`) are left out. One descent for each role of the minute's
# day.
_OF_MINUTE = f"""
WITH RECURSIVE names AS (
    (SELECT role FROM celeriac.history WHERE {_OF_DAY} ORDER BY role LIMIT 1)
    UNION ALL
    SELECT next.role FROM names, LATERAL (
        SELECT role FROM celeriac.history WHERE role > names.role AND {_OF_DAY} ORDER BY role LIMIT 1) AS next
), ended AS (
    SELECT h.* FROM names LEFT JOIN celeriac.roles r ON r.role = names.role CROSS JOIN LATERAL (
        SELECT id, role, status, celeriac.was_retried(status, retry_count, tries, max_retries) AS again,
            worker_id, worker_pid, started_at, completed_at,
            date_part('epoch', started_at - greatest(created_at, scheduled_for)) AS waited
        FROM celeriac.history
        WHERE role = names.role AND completed_at >= CAST(:since AS timestamptz)
            AND completed_at < CAST(:until AS timestamptz) AND NOT celeriac.is_counted(r.definition, status)) AS h
)"""

# Times are exact to the microsecond, and a bucket includes its bound: hence the half of one. `date_part` gives a double
# and is quicker than `extract`, which gives a numeric.
_BUCKET = "width_bucket({seconds} - 5e-7, CAST(:bounds AS double precision[]))"

ENDED = text(f"""{_OF_MINUTE}
SELECT role, status, again, {_BUCKET.format(seconds="waited")} AS wait, date_trunc('minute', started_at) AS began,
    count(*) AS n, coalesce(sum(greatest(waited, 0)), 0) AS seconds
FROM ended GROUP BY 1, 2, 3, 4, 5
""")

# The tasks of a ticket ran one by one: in this minute since it began, or since the ticket did. Where slots share a
# process each ran by itself, since the ticket began.
RUNS = text(f"""{_OF_MINUTE}, sharing AS MATERIALIZED (
    SELECT worker_id FROM (SELECT DISTINCT worker_id FROM ended WHERE worker_id IS NOT NULL) AS e
    WHERE {is_sharing("e.worker_id")}
), of_ticket AS (
    SELECT role, count(*) AS n, greatest(0, date_part('epoch', max(completed_at)
        - greatest(started_at, CASE WHEN count(*) > 1 THEN CAST(:since AS timestamptz) END))) AS seconds
    FROM ended WHERE started_at IS NOT NULL AND status <> 'cancelled'
    GROUP BY role, worker_id, worker_pid, started_at,
        CASE WHEN worker_id IN (SELECT worker_id FROM sharing) THEN id END
)
SELECT role, {_BUCKET.format(seconds="seconds / n")} AS run, CAST(sum(n) AS bigint) AS n, sum(seconds) AS seconds
FROM of_ticket GROUP BY 1, 2
""")

RETRIED = text("""
SELECT role, count(*) AS n FROM celeriac.task_events
WHERE at >= CAST(:since AS timestamptz) AND at < CAST(:until AS timestamptz)
    AND kind IN ('retry', 'retry_round', 'timeout') AND to_status = 'pending'
GROUP BY role
""")

COUNTED = text("""
SELECT role, completed, completed_again, CASE WHEN definition -> 'keep' = '0' THEN failed ELSE 0 END AS failed,
    CASE WHEN definition -> 'keep' = '0' THEN failed_again ELSE 0 END AS failed_again
FROM celeriac.outcomes JOIN celeriac.roles USING (role)
WHERE minute = CAST(:since AS timestamptz) AND definition -> 'keep' IN ('null', '0')
""")


def _plus(column: str) -> str:
    """Return the assignment that adds a minute's histogram to that of all minutes."""
    return f"""{column} = CASE WHEN excluded.{column} IS NULL THEN t.{column} WHEN t.{column} IS NULL
            THEN excluded.{column} ELSE ARRAY(
                SELECT a + b FROM unnest(t.{column}, excluded.{column}) WITH ORDINALITY AS u (a, b, n)
                ORDER BY n) END"""


# INVARIANT: the watermark moves with the counts. `enqueued` is counted before them, `started` before or after.
TELL = text(f"""
WITH told AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(CAST(:told AS jsonb)) AS (
        role text, is_known boolean, completed bigint, failed bigint, cancelled bigint, retried bigint,
        completed_again bigint, failed_again bigint, waits integer[], wait_seconds double precision, runs integer[],
        run_seconds double precision)
    ORDER BY role
), minute AS (
    INSERT INTO celeriac.minutes AS m (
        role, minute, enqueued, started, completed, failed, cancelled, retried, completed_again, failed_again, waits,
        runs)
    SELECT role, CAST(:since AS timestamptz), CASE WHEN is_known THEN 0 END, CASE WHEN is_known THEN 0 END, completed,
        failed, cancelled, retried, completed_again, failed_again, waits, runs
    FROM told
    ON CONFLICT (role, minute) DO UPDATE
    SET enqueued = m.enqueued + excluded.enqueued, started = m.started + excluded.started,
        completed = excluded.completed, failed = excluded.failed, cancelled = excluded.cancelled,
        retried = excluded.retried, completed_again = excluded.completed_again, failed_again = excluded.failed_again,
        waits = excluded.waits, runs = excluded.runs
), in_all AS (
    INSERT INTO celeriac.minutes_in_all AS t (
        role, completed, failed, cancelled, retried, waits, wait_seconds, runs, run_seconds)
    SELECT role, completed, failed, cancelled, retried, waits, wait_seconds, runs, run_seconds FROM told
    ON CONFLICT (role) DO UPDATE
    SET completed = t.completed + excluded.completed,
        failed = t.failed + excluded.failed, cancelled = t.cancelled + excluded.cancelled,
        retried = t.retried + excluded.retried, wait_seconds = t.wait_seconds + excluded.wait_seconds,
        run_seconds = t.run_seconds + excluded.run_seconds,
        {_plus("waits")},
        {_plus("runs")}
), moved AS (
    UPDATE celeriac.minutes_until SET until = CAST(:until AS timestamptz)
)
SELECT count(*) FROM told
""")


STARTED = text("""
INSERT INTO celeriac.minutes AS m (role, minute, started)
SELECT * FROM unnest(CAST(:roles AS text[]), CAST(:minutes AS timestamptz[]), CAST(:counts AS bigint[]))
    AS began (role, minute, n) ORDER BY role, minute
ON CONFLICT (role, minute) DO UPDATE SET started = m.started + excluded.started
""")


@dataclass(slots=True)
class Minute:
    """A role's minute. `is_known` False: enqueued and started are unknown. `waits`, `runs` None: there were none."""

    is_known: bool = True
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    completed_again: int = 0
    failed_again: int = 0
    waits: list[int] | None = None
    wait_seconds: float = 0.0
    runs: list[int] | None = None
    run_seconds: float = 0.0

    def add(self, status: str, n: int, *, again: bool) -> None:
        """Add so many tasks that ended with this status; `again`: they had an earlier attempt."""
        for name in (status, f"{status}_again") if again and status != CANCELLED else (status,):
            setattr(self, name, getattr(self, name) + n)


#: The number of tasks that began, by role and minute.
Began = Counter[tuple[str, datetime]]


def count_minutes(app: RepairApp) -> int:
    """Count the minutes that are over, by role: enqueued, started, ended, retried, waits and run times."""
    return _while(app.database, BATCHES, _count_enqueued) + _while(app.database, MINUTES, _count_minute)


def _while(database: Database, times: int, count: Callable[[Connection, Row[Any]], int | None]) -> int:
    """Call `count` in one transaction each, until nothing is left or somebody else counts; return the number of rows
    written.
    """
    written = 0
    for _ in range(times):
        with database.transaction() as connection, lookups(connection):
            taken = connection.execute(TAKE, {"days": MINUTES_KEPT, "lag": LAG}).one_or_none()
            some = None if taken is None else count(connection, taken)
        if some is None:
            break
        written += some
    return written


def _count_enqueued(connection: Connection, taken: Row[Any]) -> int | None:
    if taken.task >= taken.seen:
        return None
    parameters = {"after": taken.task, "upto": min(taken.task + BATCH, taken.seen), "forgets": _forgets(connection)}
    return int(connection.execute(ENQUEUED, parameters).scalar_one())


def _count_minute(connection: Connection, taken: Row[Any]) -> int | None:
    """Count the next minute, once its enqueued tasks are counted; if there is none, note the newest task id."""
    if taken.task < taken.seen:
        return None
    if taken.since + MINUTE > taken.seen_at:
        connection.execute(SEE)
        return None
    figures, began = minute(connection, taken.since)
    rows = [{"role": role} | asdict(of_role) for role, of_role in figures.items()]
    span = {"since": taken.since, "until": taken.since + MINUTE}
    written = int(connection.execute(TELL, span | {"told": json.dumps(rows)}).scalar_one())
    roles, minutes = [role for role, _ in began], [at for _, at in began]
    connection.execute(STARTED, {"roles": roles, "minutes": minutes, "counts": list(began.values())})
    return written


def minute(connection: Connection, since: datetime) -> tuple[dict[str, Minute], Began]:
    """Return the counts by role of the minute that begins then, from the remaining rows, and when the tasks that ended
    in it had begun.
    """
    figures: dict[str, Minute] = defaultdict(Minute)
    began = Began()
    span = {"since": since, "until": since + MINUTE}
    waits, runs = defaultdict[str, list[tuple[int, int]]](list), defaultdict[str, list[tuple[int, int]]](list)
    for row in connection.execute(ENDED, span | {"bounds": list(BOUNDS)}):
        figures[row.role].add(row.status, row.n, again=row.again)
        if row.began is not None:
            waits[row.role].append((row.wait, row.n))
            figures[row.role].wait_seconds += row.seconds
            began[row.role, row.began] += row.n
    for row in connection.execute(RUNS, span | {"bounds": list(BOUNDS)}):
        runs[row.role].append((row.run, row.n))
        figures[row.role].run_seconds += row.seconds
    for row in connection.execute(RETRIED, span):
        figures[row.role].retried = row.n
    for role, pairs in waits.items():
        figures[role].waits = counts(pairs)
    for role, pairs in runs.items():
        figures[role].runs = counts(pairs)
    forgets = _forgets(connection)
    figures |= _forgetful(connection, figures, since, forgets)
    return figures, Began({(role, at): n for (role, at), n in began.items() if role not in forgets})


def _forgets(connection: Connection) -> list[str]:
    """Return the roles that keep no successes."""
    return list(connection.execute(FORGETS).scalars())


def _forgetful(
    connection: Connection, figures: Mapping[str, Minute], since: datetime, forgets: Sequence[str]
) -> dict[str, Minute]:
    """Return the counts known for these roles."""
    counted = {row.role: row for row in connection.execute(COUNTED, {"since": since})}
    known: dict[str, Minute] = {}
    for role in {*forgets} & (figures.keys() | counted.keys()):
        one = figures.get(role, Minute())
        known[role] = Minute(
            False, one.completed, one.failed, one.cancelled, one.retried, one.completed_again, one.failed_again
        )
        for name in ("completed", "failed", "completed_again", "failed_again") if role in counted else ():
            setattr(known[role], name, getattr(known[role], name) + getattr(counted[role], name))
    return known
