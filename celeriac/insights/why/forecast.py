"""Forecast when a task may start, and what has to happen first. What nobody can know is called unknown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from celeriac.insights.why.checks import Reason
from celeriac.insights.why.situation import Situation, is_stale
from celeriac.insights.why.spans import span
from celeriac.store.shell import argument, word
from celeriac.store.states import RUNNING


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast. `expected` None: unknown, and `basis` says why. `next`: what the task waits for."""

    expected: datetime | None
    basis: str
    next: str


_RENAMED = "; where its role was renamed: celeriac roles move {role} NAME"

#: For each reason, what an operator can do or has to wait for.
_NEXT: dict[Reason, str] = {
    "role_unknown": f"a worker or beat whose code declares the role{_RENAMED}",
    "role_paused": "somebody to resume its role: celeriac roles resume {role}",
    "account_paused": "somebody to resume its account: celeriac accounts resume {account}",
    "account_cap": "a task of its account to end, or a higher cap: celeriac accounts set --cap N {account}",
    "members": "the last of its members to finish",
    "redis_away": "Redis",
    "no_worker": f"a worker: celery worker -Q {{queue}}{_RENAMED}",
    "backing_off": "a worker with memory and processor to spare",
    "no_pass": f"a pass of its role, from beat, a worker or by hand: celeriac roles dispatch {{role}}{_RENAMED}",
    "unknown": "another attempt",
}


def forecast(s: Situation, reason: Reason) -> Forecast:
    """Return the forecast of an unfinished task that has not begun."""
    if reason in _WHEN:
        return _WHEN[reason](s)
    names = {
        "role": argument(s.task["role"]), "account": argument(s.task["account"]), "queue": word(s.of.queue),
    }  # fmt: skip
    following = _NEXT[reason].format_map(names)
    return Forecast(None, "unknown, because nobody knows when that will be", following)


def _later(s: Situation) -> Forecast:
    return Forecast(s.task["scheduled_for"], "its time; then it needs a free slot and a worker", "its time")


def _lock(s: Situation) -> Forecast:
    head = s.head
    if head is None:
        return Forecast(None, "unknown, because its lock key has no holder", "a worker's next check")
    following = f"task {head.id} to end: see celeriac why {head.id}"
    if head.status != RUNNING:
        return Forecast(None, f"unknown, because task {head.id} has not begun", following)
    if is_stale(head):
        basis = f"unknown, because its worker is silent: after {span(head.stale_after)} of that the sweep frees it"
        return Forecast(None, basis, "the sweep, rescue")
    if head.seconds_per_task is None or s.ahead is None:
        return Forecast(None, f"unknown, because nobody has measured how long a task of {head.role} takes", following)
    ends = max(s.now, head.started_at + timedelta(seconds=head.seconds_per_task))
    basis = f"a task of {head.role} takes about {head.seconds_per_task:.2g} s, and {s.ahead} go first"
    return Forecast(ends + timedelta(seconds=head.seconds_per_task * s.ahead), basis, following)


def _rate(s: Situation) -> Forecast:
    lacking = 1 + s.ahead_in_account + s.held.unstarted - s.of.tokens
    expected = s.now + timedelta(seconds=lacking / s.of.per_second)
    return Forecast(expected, f"at the earliest, by its role's rate {s.of.rate_limit}", "the rate to let another begin")


def _slot(s: Situation) -> Forecast:
    """Forecast by tasks that go first: those claimed, those before it in its account, and others' in the pass."""
    others = s.others_first if s.free > 0 else 0
    return _paced(s, s.held.unstarted + s.ahead_in_account + others + 1, "a task of its role to end")


def _in_queue(s: Situation) -> Forecast:
    return _paced(s, s.held.before, "a free process of a worker")


def _paced(s: Situation, before: int, following: str) -> Forecast:
    seconds, slots = s.of.seconds_per_task, sum(worker.concurrency for worker in s.takers)
    if seconds is None:
        return Forecast(None, "unknown, because nobody has measured how long a task of its role takes", following)
    if not slots:
        return Forecast(None, "unknown, because no worker is there", following)
    basis = f"{before} go first, about {seconds:.2g} s each on {slots} processes"
    return Forecast(s.now + timedelta(seconds=before * seconds / slots), basis, following)


def _next_pass(s: Situation) -> Forecast:
    if s.lookers:
        return Forecast(s.now, "workers poll for work each second, unless POLL_INTERVAL_MS says otherwise", "a pass")
    return Forecast(max(s.now, s.beat.next_run_at), f"beat's schedule {s.beat.name!r}", "beat's next pass")


def _freed(s: Situation) -> Forecast:
    assert s.broker is not None
    if not s.is_swept:
        return Forecast(None, "unknown, because no beat and no worker is here that sweeps", "a beat or a worker")
    due = s.task["claimed_at"] + timedelta(seconds=s.broker.republish_after)
    return Forecast(max(s.now, due), "when the sweep of lost tickets frees it", "the sweep of lost tickets")


def _taken(s: Situation) -> Forecast:
    freed, following = _freed(s), "a free process of that worker"
    latest = freed.basis if freed.expected is None else f"at the latest, if it is lost: {freed.basis}"
    return Forecast(freed.expected, latest, following)


_WHEN = {
    "later": _later, "lock": _lock, "rate": _rate, "window_full": _slot, "not_its_turn": _slot, "entering": _next_pass,
    "runnable": _next_pass, "in_queue": _in_queue, "taken": _taken, "ticket_lost": _freed,
}  # fmt: skip
