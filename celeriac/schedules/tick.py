"""A tick: one beat takes one due schedule, enqueues and advances it, in one transaction by the database's clock."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.schedules.decide import Plan, PlannedJob, ticks, why_left_out

_COLUMNS = """id, name, kind, target, kwargs, options, cron_expression, timezone, priority, misfire, misfire_grace,
    overlap, next_run_at, last_run_at, planned_as, last_task_id, statement_timestamp() AS now"""

# INVARIANT: whoever has locked the row decides on its present values; another beat skips it.
TAKE = text(f"""
SELECT {_COLUMNS}
FROM celeriac.scheduled_jobs
WHERE owner IN (:owner, 'api') AND enabled AND quarantined IS NULL AND id <> ALL(CAST(:but AS bigint[]))
    AND (next_run_at <= statement_timestamp() OR planned_as IS DISTINCT FROM timezone || '|' || cron_expression)
ORDER BY next_run_at LIMIT 1 FOR UPDATE SKIP LOCKED
""")

# Passes and sweeps that are due and that no tick could take: somebody's open transaction has locked their rows.
HELD = text(f"""
SELECT {_COLUMNS}
FROM celeriac.scheduled_jobs
WHERE owner IN (:owner, 'api') AND enabled AND quarantined IS NULL AND kind <> 'task'
    AND next_run_at < statement_timestamp() - :seconds * interval '1 second'
ORDER BY next_run_at
""")

# Records each instant's outcome in the statement that advances to the next one.
ADVANCE = text("""
WITH told AS (
    INSERT INTO celeriac.ticks (schedule, due_at, task_id, is_new, left_out, why)
    SELECT :id, due_at, task_id, is_new, left_out, why FROM jsonb_to_recordset(CAST(:ticks AS jsonb)) AS t (
        due_at timestamptz, task_id text, is_new boolean, left_out bigint, why text)
)
UPDATE celeriac.scheduled_jobs
SET next_run_at = :next_run_at, planned_as = :planned_as, last_run_at = coalesce(:last_run_at, last_run_at),
    last_task_id = coalesce(:last_task_id, last_task_id), skips = skips + :skipped,
    last_skip_at = CASE WHEN :skipped > 0 THEN clock_timestamp() ELSE last_skip_at END,
    last_report = CASE WHEN :skipped > 0 THEN jsonb_build_object(
        'left_out', CAST(:skipped AS bigint), 'since', next_run_at, 'why', CAST(:why AS text)) ELSE last_report END
WHERE id = :id
""")

REMEMBER = text("UPDATE celeriac.scheduled_jobs SET last_task_id = :task_id WHERE id = :id")

QUARANTINE = text("""
WITH told AS (
    INSERT INTO celeriac.ticks (schedule, due_at, left_out, why)
    SELECT id, next_run_at, 1, 'it cannot run: ' || :why FROM celeriac.scheduled_jobs
    WHERE id = :id AND kind = 'task' AND next_run_at <= statement_timestamp()
)
UPDATE celeriac.scheduled_jobs SET quarantined = :why WHERE id = :id
""")

IS_UNFINISHED = text("""
SELECT EXISTS (SELECT FROM celeriac.tasks WHERE task_id = :task_id)
""")

NEXT = text("""
SELECT extract(epoch FROM min(next_run_at) - clock_timestamp()) FROM celeriac.scheduled_jobs
WHERE owner IN (:owner, 'api') AND enabled AND quarantined IS NULL AND id <> ALL(CAST(:but AS bigint[]))
""")

REPORT = text("""
INSERT INTO celeriac.beats (beat_id, hostname, pid, late_by)
SELECT :beat_id, :hostname, CAST(:pid AS integer), CAST(:late_by AS double precision)
FROM (SELECT celeriac.note_gap(
    (SELECT last_tick_at FROM celeriac.beats WHERE beat_id = :beat_id),
    (SELECT least(
        CAST(:silence AS double precision), min(CAST(definition ->> 'stale_after' AS double precision)) * 2 / 3)
    FROM celeriac.roles))) AS noted
ON CONFLICT (beat_id) DO UPDATE SET last_tick_at = clock_timestamp(), late_by = excluded.late_by
""")

#: Seconds that a tick waits for an open transaction that has locked what it needs.
PATIENCE = 0.5

#: For how long (seconds) the row of a pass or a sweep is waited for. These run without their row then: they decide by
#: state, and do no harm if they run twice.
HELD_FOR = 2.0

#: Beats report each second. If there was no report for so long (seconds), or for two thirds of the shortest lease if
#: that is less, nobody could write.
SILENCE = 5.0

LEAVE = text("DELETE FROM celeriac.beats WHERE beat_id = :beat_id")


def take(connection: Connection, owner: str, but: Collection[int] = ()) -> tuple[PlannedJob, datetime] | None:
    """Lock a schedule that is due or has a changed expression and is not in `but`; return it and the database's
    time.
    """
    row = connection.execute(TAKE, {"owner": owner, "but": list(but)}).one_or_none()
    return None if row is None else (PlannedJob(*row[:-1]), row.now)


def held(connection: Connection, owner: str) -> list[tuple[PlannedJob, datetime]]:
    """Return the passes and sweeps that nobody could take for `HELD_FOR`, and the database's time."""
    rows = connection.execute(HELD, {"owner": owner, "seconds": HELD_FOR})
    return [(PlannedJob(*row[:-1]), row.now) for row in rows]


def advance(connection: Connection, job: PlannedJob, due: Plan, plan: Plan, tasks: Sequence[tuple[str, bool]]) -> None:
    """Record the outcomes of the instants `due`, and go on. `tasks`: those of the instants that the `plan` ran, and
    whether each is new.
    """
    outcomes = ticks(job, due, plan, tasks) if job.kind == "task" else []
    connection.execute(ADVANCE, {
        "id": job.id, "next_run_at": plan.next_run_at, "planned_as": job.plan_key,
        "last_run_at": plan.run[-1] if plan.run else None, "last_task_id": tasks[-1][0] if tasks else None,
        "skipped": plan.skipped, "why": why_left_out(job, due, plan),
        "ticks": json.dumps([asdict(one) | {"due_at": one.due_at.isoformat()} for one in outcomes]),
    })  # fmt: skip


def remember(connection: Connection, job: PlannedJob, task_id: str) -> None:
    """Record the task that the next one may not overlap with."""
    connection.execute(REMEMBER, {"id": job.id, "task_id": task_id})


def quarantine(connection: Connection, job: PlannedJob, why: str) -> None:
    """Leave the schedule alone until somebody changes it or a beat starts."""
    connection.execute(QUARANTINE, {"id": job.id, "why": why})


def is_unfinished(connection: Connection, task_id: str) -> bool:
    return bool(connection.execute(IS_UNFINISHED, {"task_id": task_id}).scalar_one())


def seconds_to_next(connection: Connection, owner: str, but: Collection[int] = ()) -> float | None:
    seconds = connection.execute(NEXT, {"owner": owner, "but": list(but)}).scalar_one()
    return None if seconds is None else max(0.0, float(seconds))


def report(connection: Connection, beat_id: str, hostname: str, pid: int, late_by: float) -> None:
    """Report that this beat ticks, and that its last run was so many seconds late."""
    row = {"beat_id": beat_id, "hostname": hostname, "pid": pid, "late_by": late_by}
    connection.execute(REPORT, row | {"silence": SILENCE})


def leave(connection: Connection, beat_id: str) -> None:
    connection.execute(LEAVE, {"beat_id": beat_id})
