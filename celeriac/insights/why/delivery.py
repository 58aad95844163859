"""Checks of the way to a worker: Redis, the passes that claim, the ticket, and the worker that takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from celeriac.insights.why.checks import Check
from celeriac.insights.why.situation import Situation, WorkerSeen
from celeriac.insights.why.spans import span
from celeriac.store.states import GONE, NO_TICK, WAITS_FOR_TIME

#: Seconds after which no worker counts as polling: each polls every POLL_INTERVAL_MS, by default a second.
LOOKS = 10.0

#: The age (seconds) from which a heartbeat (at least every 40 s) or a beat's tick (each second) is mentioned as late.
LATE, LATE_TICK = 45.0, 5.0

#: A ticket that left its queue less than so many seconds ago is still on its way through a worker.
MOMENT = 2.0


def redis(s: Situation) -> Check:
    if s.broker is None:
        return Check("redis", "unknown", "Redis was not checked")
    if not s.broker.has_redis:
        return Check("redis", "yes", "there is no Redis, and none is needed")
    if s.broker.answers():
        return Check("redis", "yes", "Redis answers")
    outlook = "workers look for it in SQL" if s.is_pending else "workers take the ticket up when it is back"
    whose = "" if s.is_pending else "it is claimed, and "
    return Check("redis", "no", f"{whose}Redis does not answer: {outlook}", reason="redis_away")


# -- passes ------------------------------------------------------------------------------------------------------------


def passes(s: Situation) -> Check:
    """Check that somebody runs the role's passes, and has since the task was due."""
    facts = {
        "last_pass_age": None if s.of.last_at is None else s.since(s.of.last_at), "last_pass_by": s.of.last_by,
        "why_nothing": s.of.why_nothing, "beat_age": s.beat.age, "next_pass": s.beat.next_run_at,
    }  # fmt: skip
    if not (who := list(_who_passes(s))):
        return _nobody_passes(s, facts)
    last = "none yet" if s.of.last_at is None else f"the last was {span(s.since(s.of.last_at))} ago"
    if _is_overdue(s):
        sentence = f"no pass of its role came since it was due {span(s.waited)} ago ({last}), though {_and(who)}"
        return Check("passes", "no", sentence, facts, "no_pass")
    return Check("passes", "yes", f"{_and(who)}; of the role's passes {last}", facts)


def _who_passes(s: Situation) -> Iterator[str]:
    if s.lookers:
        yield f"{names(s.lookers)} look{'s' if len(s.lookers) == 1 else ''} for work"
    if s.beat_passes:
        yield "beat runs" if s.beat.age < LATE_TICK else f"beat ran {span(s.beat.age)} ago"


def _is_overdue(s: Situation) -> bool:
    """Return whether a pass should have come by now. No pass could see a task that has only just become ready."""
    if s.task["waits_for"] not in (None, WAITS_FOR_TIME):
        return False
    patience = LOOKS if s.lookers else max(LOOKS, 2 * s.of.every)
    return s.waited > patience and (s.of.last_at is None or s.since(s.of.last_at) > s.waited)


def _nobody_passes(s: Situation, facts: dict[str, Any]) -> Check:
    beat = _why_no_beat(s)
    if not s.of.prompt:
        return Check("passes", "no", f"nobody makes its role's passes: {beat}", facts, "no_pass")
    if s.takers:
        full = f"{s.held.n} of {s.of.size} slots are taken: workers make a pass once one is free"
        return Check("passes", "no", f"{full}, and {beat}", facts, "no_pass")
    missing = worker(s)
    return Check("passes", "no", f"{missing.sentence}; {beat}", {**facts, **missing.facts}, missing.reason)


def _why_no_beat(s: Situation) -> str:
    if s.beat.name is None:
        return "no schedule of beat makes a pass of it"
    if not s.beat.is_on:
        switch = f" (see {s.of.enabled_by})" if s.of.enabled_by else ""
        return f"beat's schedule {s.beat.name!r} is switched off{switch}"
    if s.beat.age is None:
        return "no beat runs"
    if s.beat.age > NO_TICK:
        return f"no beat runs, the last ticked {span(s.beat.age)} ago"
    return f"no beat runs its schedule {s.beat.name!r}, which is overdue for {span(s.pass_overdue)}"


# -- ticket, worker ----------------------------------------------------------------------------------------------------


def ticket(s: Situation) -> Check:
    """Check where a claimed task's ticket is. If it has left its queue, a worker without a free process may have it."""
    if s.is_pending:
        return Check("ticket", "not asked", "it gets a ticket when it is claimed")
    age = s.since(s.task["claimed_at"])
    facts = {"age": age, "queue": s.of.queue}
    if s.broker is None:
        return Check("ticket", "unknown", "whether its ticket is in Redis was not checked", facts)
    facts |= {"republish_after": s.broker.republish_after}
    queued = s.broker.has(s.of.queue, str(s.task["token"]))
    if queued is None:
        return Check("ticket", "unknown", "whether its ticket is in Redis is unknown: Redis does not answer", facts)
    if queued:
        facts |= {"in_queue": s.broker.length(s.of.queue)}
        return Check("ticket", "yes", f"its ticket is in the queue {s.of.queue!r} for {span(age)}", facts)
    if busy := _may_have_it(s, age):
        sentence = f"its ticket left the queue {s.of.queue!r}: {names(busy)} may have it, or else it is lost"
        return Check("ticket", "unknown", sentence, facts | {"taken": True})
    sentence = f"its ticket of {span(age)} ago is not in Redis any more: {_freed(s, s.broker.republish_after - age)}"
    return Check("ticket", "no", sentence, facts, "ticket_lost")


def _freed(s: Situation, left: float) -> str:
    if not s.is_swept:
        return "a beat or a worker frees it, and none is here"
    when = f"in {span(left)}" if left > 0 else "at the next sweep"
    return f"it is freed {when}, to be claimed again"


def _may_have_it(s: Situation, age: float) -> list[WorkerSeen]:
    heard = [worker for worker in s.workers if worker.status != "stopped" and worker.heartbeat_age <= GONE]
    return [worker for worker in heard if age < MOMENT or not worker.takes or worker.busy >= worker.concurrency]


def worker(s: Situation) -> Check:
    """Check that some worker takes tickets from the role's queue."""
    queue = s.of.queue
    facts = {
        "queue": queue,
        "workers": [
            {"worker": w.worker_id, "status": w.status, "heartbeat_age": w.heartbeat_age, "busy": w.busy,
             "concurrency": w.concurrency, "backing_off": w.backoff_reason if w.is_backing_off else None}
            for w in s.workers[:10]
        ],
    }  # fmt: skip
    if s.takers:
        return _taken_by(s, facts)
    if there := [w for w in s.workers if w.is_there]:
        reason = there[0].backoff_reason or "memory or processor are short"
        who = "back off and take nothing" if len(there) > 1 else "backs off and takes nothing"
        return Check("worker", "no", f"{names(there)} {who}: {reason}", facts, "backing_off")
    return Check("worker", "no", f"no worker listens on the queue {queue!r}{_who_did(s)}", facts, "no_worker")


def _taken_by(s: Situation, facts: dict[str, Any]) -> Check:
    """Report the queue's workers. If free slots take nothing, they may be gone: heartbeats show that later."""
    slots = sum(w.concurrency for w in s.takers)
    free = sum(max(0, w.concurrency - w.busy) for w in s.takers)
    one = len(s.takers) == 1
    who = f"{names(s.takers)} {'takes' if one else 'take'} from the queue {s.of.queue!r}"
    waits = 0.0 if s.is_pending else s.since(s.task["claimed_at"])
    if free and waits > LOOKS:
        late = f"{free} of {slots} slots are free, and none has taken it for {span(waits)}"
        return Check("worker", "unknown", f"{who}; {late}: {'it' if one else 'they'} may be gone", facts)
    return Check("worker", "yes", f"{who}; {slots - free} of {slots} slots are busy", facts)


def _who_did(s: Situation) -> str:
    if draining := [w for w in s.workers if w.status == "draining" and w.heartbeat_age <= GONE]:
        return f": {names(draining)} {'end' if len(draining) > 1 else 'ends'}"
    if not s.workers:
        return ""
    last = s.workers[0]
    did = "ended" if last.status == "stopped" else "was heard last,"
    return f": {last.worker_id} {did} {span(last.heartbeat_age)} ago"


def names(workers: Sequence[WorkerSeen]) -> str:
    """Return at most three names, with the age of a late heartbeat."""
    late = [f" (heard {span(w.heartbeat_age)} ago)" if w.heartbeat_age > LATE else "" for w in workers]
    more = f" and {len(workers) - 3} more" if len(workers) > 3 else ""
    return ", ".join(worker.worker_id + heard for worker, heard in zip(workers[:3], late, strict=False)) + more


def _and(parts: Sequence[str]) -> str:
    return " and ".join(parts)
