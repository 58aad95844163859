"""A task's past and near future: its path through its states, its failed attempts, the next one, and its children.

The path is computed from stored data only: events, and the row's times of the last attempt. The start of an earlier
attempt is not kept: the event that ended it shows that it ran, but not when it began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from celeriac.store.states import CLAIMED, COMPLETED, FINISHED, PENDING, RUNNING

#: Most children that are returned.
MOST_CHILDREN = 50

#: Runs of a role that are returned.
MOST_RUNS = 60

# INVARIANT: at most :most entries of each index of parents are read. Tasks made by `celeriac.fall_out` are no children.
CHILDREN = text("""
WITH walk AS MATERIALIZED (
    (SELECT id FROM celeriac.tasks WHERE parent_id = :id AND headers #> '{canvas,fall_out}' IS NULL LIMIT :most)
    UNION ALL
    (SELECT id FROM celeriac.ended WHERE parent_id = :id LIMIT :most)
    LIMIT :most)
SELECT id, role, status, waits_for, created_at, completed_at FROM celeriac.tasks_with(ARRAY(SELECT id FROM walk))
ORDER BY id
""")

DELAYS = text("""
SELECT definition -> 'backoff' AS backoff, CAST(definition ->> 'round_delay' AS double precision) AS round_delay
FROM celeriac.roles WHERE role = :role
""")

RUNS = text("""
SELECT id, status,
    CAST(extract(epoch FROM completed_at - coalesce(started_at, completed_at)) AS double precision) AS seconds
FROM celeriac.last_ended(:role, :most) ORDER BY completed_at DESC, id DESC
""")

TRACEBACK = text("""
SELECT result ->> 'traceback' FROM celeriac.history_with(ARRAY[CAST(:id AS bigint)]) WHERE status = 'failed' LIMIT 1
""")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended. `seconds`: the length of its last attempt."""

    id: int
    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt without success; `number` 1 is the first. `kind`: its event's, such as retry, timeout or lost."""

    number: int
    at: datetime
    kind: str
    by: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Stop:
    """A state on the path. `at`: when it began, None if not kept. `lasted`: seconds until the next stop, None if either
    time is unknown, or for the last stop. `why`: the event that led here, in a word.
    """

    status: str
    at: datetime | None
    why: str | None = None
    lasted: float | None = None


def attempts(events: Sequence[Mapping[str, Any]]) -> list[EndedAttempt]:
    """Return a task's attempts without success, newest first. `events`: in order; a completion is no event."""
    ended = [e for e in events if e["from_status"] == RUNNING and e["to_status"] not in (RUNNING, COMPLETED)]
    return [EndedAttempt(n, e["at"], e["kind"], e["by"], e["why"]) for n, e in enumerate(ended, start=1)][::-1]


def runs(connection: Connection, role: str, *, limit: int = MOST_RUNS) -> list[EndedRun]:
    """Return a role's last runs that are kept, newest first."""
    return [EndedRun(*row) for row in connection.execute(RUNS, {"role": role, "most": limit})]


def children(connection: Connection, task: int, *, limit: int = MOST_CHILDREN) -> list[dict[str, Any]]:
    """Return the tasks that it enqueued or that follow it, by id: at most `limit` of them, an arbitrary choice."""
    return [dict(row) for row in connection.execute(CHILDREN, {"id": task, "most": limit}).mappings()]


def traceback(connection: Connection, task: int) -> str | None:
    """Return the traceback of the task's last attempt, if that failed and is kept."""
    return connection.execute(TRACEBACK, {"id": task}).scalar_one_or_none()


def delays(connection: Connection, role: str) -> tuple[Mapping[str, Any] | None, float | None]:
    """Return the role's backoff and the seconds between its rounds, each None if it declares none or is unknown."""
    row = connection.execute(DELAYS, {"role": role}).one_or_none()
    return (None, None) if row is None else (row.backoff, row.round_delay)


def after_a_failure(task: Mapping[str, Any], backoff: Mapping[str, Any] | None, round_delay: float | None) -> str:
    """Return a sentence on what follows if this unfinished task fails now, as `settle.retries` decides it."""
    done, most, tries, rounds = (task[name] for name in ("retry_count", "max_retries", "tries", "max_rounds"))
    attempt = f"Attempt {done + 1}" + ("" if most is None else f" of {most + 1}")
    here = attempt if rounds <= 1 else f"{attempt}, in round {tries + 1} of {rounds}"
    if most is None or done < most:
        return f"{here}. {_retry(done, backoff)}"
    if tries + 1 < rounds:
        return f"{here}. If it fails, the next round begins {round_delay or 0:g} s later."
    return f"{here}. If it fails, it has failed for good."


def _retry(done: int, backoff: Mapping[str, Any] | None) -> str:
    if backoff is None:
        return "If it fails and is to be retried, it is after as long as its handler says."
    base, maximum, jitter = backoff["base"], backoff["maximum"], backoff["jitter"]
    delay = min(maximum, base * 2.0 ** min(done, 64))
    spread = "at most " if jitter is True else "about " if jitter else ""
    more = ", less by chance" if jitter is True else f", ±{jitter:.0%}" if jitter else ""
    formula = f"{base:g} s × 2^{done}, at most {maximum:g} s{more}"
    return f"If it fails and is to be retried, it is {spread}{delay:g} s later ({formula})."


def path(task: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[Stop]:
    """Return the path. `events`: in order, as from `insights.tasks.events`."""
    stops = [*_stops(task, events)]
    return [_lasting(stop, following) for stop, following in zip(stops, [*stops[1:], None], strict=True)]


def _stops(task: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Iterator[Stop]:
    last = Stop(PENDING, task["created_at"], "enqueued")
    yield last
    for event in events:
        before, after = event["from_status"], event["to_status"]
        if after is None or before == after:
            continue
        if before in (CLAIMED, RUNNING) and last.status != before:
            yield Stop(before, _kept(task, before, last, event["at"]))
        last = Stop(after, event["at"], event["kind"].replace("_", " "))
        yield last
    yield from _last_attempt(task, last)


def _last_attempt(task: Mapping[str, Any], last: Stop) -> Iterator[Stop]:
    """Yield the states after the last event, by the row's times."""
    if last.status in FINISHED:
        return
    for status, name in ((CLAIMED, "claimed_at"), (RUNNING, "started_at")):
        at = task[name]
        if at is not None and (last.at is None or at >= last.at) and last.status != status:
            last = Stop(status, at)
            yield last
    if task["status"] in FINISHED:
        yield Stop(task["status"], task["completed_at"])


def _kept(task: Mapping[str, Any], status: str, last: Stop, until: datetime) -> datetime | None:
    """Return the row's time of this state, if it lies between these two."""
    at: datetime | None = task["claimed_at" if status == CLAIMED else "started_at"]
    return at if at is not None and last.at is not None and last.at <= at <= until else None


def _lasting(stop: Stop, following: Stop | None) -> Stop:
    if following is None or stop.at is None or following.at is None:
        return stop
    return replace(stop, lasted=max(0.0, (following.at - stop.at).total_seconds()))
