"""Ticks: the outcome of each instant of a task's schedule, and how late beat has been."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.insights.tasks.counting import Count
from celeriac.store.states import STRIP

#: Maximum number of a day's ticks that are read for their lateness, and of skipped ones that are counted.
LOOKED_AT, COUNTED = 10_000, 1_000

MOST = 1_000

#: The status of a task that is neither unfinished nor in history, because its role no longer keeps it.
NOT_KEPT = "not kept"

_TICK = """due_at, done_at, CAST(extract(epoch FROM done_at - due_at) AS double precision) AS late_seconds, task_id,
    is_new, left_out, why"""

TICKS = text(f"""
SELECT {_TICK} FROM celeriac.ticks
WHERE schedule = :schedule AND (due_at, done_at) < (
    coalesce(CAST(:due AS timestamptz), 'infinity'), coalesce(CAST(:done AS timestamptz), 'infinity'))
ORDER BY due_at DESC, done_at DESC LIMIT :most
""")

STRIPS = text(f"""
SELECT s.id AS schedule, t.* FROM unnest(CAST(:schedules AS bigint[])) AS s (id), LATERAL (
    SELECT {_TICK} FROM celeriac.ticks WHERE schedule = s.id ORDER BY due_at DESC, done_at DESC LIMIT :most) AS t
ORDER BY s.id, t.due_at, t.done_at
""")

MISSED = text("""
SELECT s.id, CAST(coalesce(sum(m.left_out), 0) AS bigint) AS n, count(*) AS looked_at
FROM unnest(CAST(:schedules AS bigint[])) AS s (id), LATERAL (
    SELECT left_out FROM celeriac.ticks
    WHERE schedule = s.id AND left_out > 0 AND due_at > statement_timestamp() - interval '1 day'
    ORDER BY due_at DESC LIMIT :most) AS m
GROUP BY s.id
""")

# A task ends after its tick, so the tick's time limits the days of history that are read.
OUTCOMES = text("""
SELECT w.task_id, coalesce(o.id, h.id) AS id, CASE WHEN o.id IS NULL THEN h.status ELSE coalesce((
    SELECT CASE WHEN k.worker_id IS NULL THEN 'claimed' ELSE 'running' END
    FROM celeriac.tickets k WHERE k.role = o.lane AND o.id = ANY (k.ids) LIMIT 1), 'pending') END AS status
FROM unnest(CAST(:task_ids AS text[]), CAST(:since AS timestamptz[])) AS w (task_id, since)
LEFT JOIN LATERAL (
    SELECT id, celeriac.lane(role, queue) AS lane FROM celeriac.tasks WHERE task_id = w.task_id LIMIT 1) AS o ON true
LEFT JOIN LATERAL (
    SELECT id, status FROM celeriac.history_named(ARRAY[w.task_id])
    WHERE o.id IS NULL AND completed_at >= w.since LIMIT 1) AS h ON true
""")

_LATENESS = """
SELECT (SELECT CAST(extract(epoch FROM statement_timestamp() - min(next_run_at)) AS double precision)
        FROM celeriac.scheduled_jobs
        WHERE enabled AND quarantined IS NULL AND (CAST(:schedule AS bigint) IS NULL OR id = :schedule)) AS now,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY late) AS p95, max(late) AS worst, count(*) AS n
FROM (
    SELECT CAST(extract(epoch FROM done_at - due_at) AS double precision) AS late
    FROM celeriac.ticks WHERE {of} AND task_id IS NOT NULL ORDER BY {of_last} DESC LIMIT :most) AS t
"""

LATENESS = text(_LATENESS.format(of="done_at > statement_timestamp() - interval '1 day'", of_last="done_at"))

LATENESS_OF = text(
    _LATENESS.format(of="schedule = :schedule AND due_at > statement_timestamp() - interval '1 day'", of_last="due_at")
)


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness in seconds. `now`: that of the most overdue schedule, 0 if none is. The others are those of the last 24
    hours' ticks that made a task, None without any; if there are too many to read, of the newest.
    """

    now: float
    p95: float | None
    worst: float | None
    ticks: Count


@dataclass(frozen=True, slots=True)
class Ticking:
    """A schedule's last ticks, oldest first, the outcome of its last task, and the instants skipped within 24 hours."""

    strip: Sequence[Mapping[str, Any]]
    last: Mapping[str, Any] | None
    missed: Count


def ticks_of(
    connection: Connection, schedule: int, *, limit: int = STRIP, before: tuple[datetime, datetime] | None = None
) -> list[dict[str, Any]]:
    """Return a schedule's ticks, newest first, with the task's `id` and `status`. `before`: the last (due, done)."""
    if not 1 <= limit <= MOST + 1:  # one more than a page shows whether there is a following one
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    due, done = before or (None, None)
    parameters = {"schedule": schedule, "due": due, "done": done, "most": limit}
    return _with_outcomes(connection, [dict(row) for row in connection.execute(TICKS, parameters).mappings()])


def ticking(connection: Connection, schedules: Sequence[int]) -> dict[int, Ticking]:
    """Return the ticking of each of these schedules, by id."""
    strips: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in connection.execute(STRIPS, {"schedules": list(schedules), "most": STRIP}).mappings():
        strips[row["schedule"]].append({name: value for name, value in row.items() if name != "schedule"})
    missed = {row.id: row for row in connection.execute(MISSED, {"schedules": list(schedules), "most": COUNTED})}
    made = {which: next((one for one in reversed(strip) if one["task_id"]), None) for which, strip in strips.items()}
    _with_outcomes(connection, [one for one in made.values() if one])
    return {
        schedule: Ticking(
            strips[schedule], made.get(schedule),
            Count(int(missed[schedule].n), missed[schedule].looked_at < COUNTED) if schedule in missed else Count(0),
        )
        for schedule in schedules
    }  # fmt: skip


def lateness(connection: Connection, schedule: int | None = None) -> Lateness:
    """Return the lateness of all schedules, or of one."""
    statement = LATENESS if schedule is None else LATENESS_OF
    row = connection.execute(statement, {"schedule": schedule, "most": LOOKED_AT}).one()
    return Lateness(max(0.0, row.now or 0.0), row.p95, row.worst, Count(row.n, exact=row.n < LOOKED_AT))


def _with_outcomes(connection: Connection, ticks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add `id` and `status` of its task to each tick; both are None for skipped instants."""
    made = [row for row in ticks if row["task_id"]]
    parameters = {"task_ids": [row["task_id"] for row in made], "since": [row["due_at"] for row in made]}
    outcomes = {row.task_id: row for row in connection.execute(OUTCOMES, parameters)} if made else {}
    for row in ticks:
        outcome = outcomes.get(row["task_id"])
        row |= {"id": outcome and outcome.id, "status": outcome and (outcome.status or NOT_KEPT)}
    return ticks
