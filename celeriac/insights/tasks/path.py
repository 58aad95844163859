"""A task's path through its states, from stored data only: events, and its row's times of the last attempt. Pure.

The start of an earlier attempt is not kept: the event that ended it shows that it ran, but not when it began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from celeriac.store.states import CLAIMED, FINISHED, PENDING, RUNNING


@dataclass(frozen=True, slots=True)
class Stop:
    """A state on the path. `at`: when it began, None if not kept. `lasted`: seconds until the next stop, None if either
    time is unknown, or for the last stop. `why`: the event that led here, in a word.
    """

    status: str
    at: datetime | None
    why: str | None = None
    lasted: float | None = None


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
