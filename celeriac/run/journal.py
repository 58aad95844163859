"""The journal: Celery's events about rows, sent by the process in which they happen.

Flower and every other reader of events sees rows by their own ids. There are no events about tickets.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from celery.utils.saferepr import saferepr
from celery.utils.time import utcoffset

from celeriac.run import shared
from celeriac.run.run import Run
from celeriac.settle.outcome import LOST, Outcome, Started, masked
from celeriac.store.encoding import legible
from celeriac.store.forks import after_fork
from celeriac.store.redact import HIDDEN, without
from celeriac.store.sensitive import Sensitive, without_masks
from celeriac.store.states import CANCELLED, COMPLETED, FAILED, PENDING

logger = logging.getLogger(__name__)

Event = dict[str, Any]

#: Maximum number of events that are kept while Redis is away: the latest ones.
MOST = 10_000

#: Seconds between two log lines of a process that it omits events of some tasks.
TELL_EVERY = 60.0

#: Events in one message.
MESSAGE = 500

#: Maximum characters of arguments and results in an event; Celery's own bound.
SHOWN = 1024


class Journal:
    """Events on their way. `publish` sends some of them in one message and returns whether they were sent.

    Thread-safe; a forked child begins with an empty one. `rate`: how many tasks a second it sends events of.
    """

    def __init__(self, publish: Callable[[Sequence[Event]], bool], rate: float = math.inf) -> None:
        self._publish = publish
        self.rate = rate
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST)
        self._sending = threading.Lock()
        self._second = self._said = -math.inf
        self._admitted = self._left_out = 0

    def admits(self) -> bool:
        """Return whether one more task in this second gets events. Omitted ones are counted and logged once a
        minute.
        """
        now = time.monotonic()
        if now - self._second >= 1:
            self._second, self._admitted = now, 0
        self._admitted += 1
        if self._admitted <= self.rate:
            return True
        self._left_out += 1
        if now - self._said >= TELL_EVERY:
            logger.warning(
                "Events tell of %g tasks a second and process (CELERIAC_EVENTS_PER_SECOND): successes of %d more were "
                "left out so far", self.rate, self._left_out,
            )  # fmt: skip
            self._said = now
        return False

    def write(self, event: Event) -> None:
        self._events.append(event)

    def flush(self) -> None:
        """Send all events. What Redis does not take waits for the next flush."""
        with self._sending:
            while self._events:
                some = [self._events.popleft() for _ in range(min(len(self._events), MESSAGE))]
                if not self._publish(some):
                    self._events.extendleft(reversed(some[: MOST - len(self._events)]))
                    return


def tells_of(tasks: Mapping[str, Any], role: str) -> bool:
    """Return whether there are events of this role's tasks: not if its task has `send_events=False`."""
    try:
        return bool(getattr(tasks[role], "send_events", True))
    except KeyError:
        return True


def ended(run: Run, seconds: float | None, secret: Sensitive | None = None) -> Event | None:
    """Return the event for a run's outcome, if that counted.

    None also for a loss: `release` decides what becomes of the task, and the worker's event reporter sends that.
    """
    if run.outcome is None or run.became is None or run.outcome.status == LOST:
        return None
    return came_to(run.outcome, run.became, seconds, run.traceback, secret, run.error_repr)


def stopped(outcome: Outcome, became: str, secret: Sensitive | None = None) -> Event:
    """Return the event for a task that was stopped from outside: its own process sends nothing any more."""
    return came_to(outcome, became, seconds=0.0, secret=secret)


def came_to(
    outcome: Outcome, became: str, seconds: float | None, traceback: str | None = None,
    secret: Sensitive | None = None, error_repr: str | None = None,
) -> Event:  # fmt: skip
    """Return the event for what became of a task. `seconds`: how long it ran; None if it did not begin. `error_repr`:
    the `repr` of its exception, as in Celery's events.
    """
    task = outcome.task
    if became == COMPLETED:
        return about(task, "task-succeeded", result=_shown(legible(_result(outcome, secret))), runtime=seconds)
    if became == CANCELLED:
        expired = outcome.kind == "expired"
        return about(task, "task-revoked", terminated=seconds is not None, signum=None, expired=expired)
    kind = {FAILED: "task-failed", PENDING: "task-retried"}[became]
    exception = error_repr or _as_repr(outcome.result) or outcome.error or ""
    more = {"exception": exception, "traceback": traceback or "", "retries": task.retry_count}
    return about(task, kind, **more, **arguments(task.args, task.kwargs, task.headers, secret))


def _as_repr(encoded_error: Any) -> str | None:
    """Return the `repr` for an error without an exception."""
    match encoded_error:
        case {"exc_type": kind, "exc_message": [*said]}:
            return f"{kind}({', '.join(map(repr, said))})"
    return None


def _result(outcome: Outcome, secret: Sensitive | None) -> Any:
    """Return the result without secrets."""
    if secret is None:
        return outcome.result
    if secret.hides_results(outcome.task.headers):
        return HIDDEN
    return without(secret.values(outcome.task.args, outcome.task.kwargs), secret.within(outcome.result))


def received(task: Started, secret: Sensitive | None = None) -> Event:
    canvas = (task.headers or {}).get("canvas") or {}
    return about(
        task, "task-received", root_id=canvas.get("root_id") or task.task_id, parent_id=canvas.get("parent_id"),
        retries=task.retry_count, eta=None, expires=None, **arguments(task.args, task.kwargs, task.headers, secret),
    )  # fmt: skip


def arguments(
    args: Any, kwargs: Any, headers: Mapping[str, Any] | None, secret: Sensitive | None = None
) -> dict[str, str]:
    """Return the arguments as they are shown: as the call sets it (Celery's `argsrepr` and `kwargsrepr`), if it does.

    A row has all arguments by name, whichever way they were given, so a call that masks some of them masks all.
    """
    if masked(headers):
        said = (headers if secret is None else without_masks(headers)) or {}
        return {"args": said.get("argsrepr", "..."), "kwargs": said.get("kwargsrepr", "...")}
    if secret is not None:
        args, kwargs = secret.call(args, kwargs)
    return {"args": _shown(legible(args)), "kwargs": _shown(legible(kwargs))}


def about(task: Started, kind: str, **fields: Any) -> Event:
    """Return an event about this task. Each has the name, because a restarted Flower may have missed the first."""
    return event(kind, task.task_id, (task.headers or {}).get("shadow") or task.role, **fields)


def event(kind: str, task_id: str, name: str, node: str | None = None, **fields: Any) -> Event:
    """Return an event. `node`: the worker where it happened, if not this one.
    Flower lists any name given here as a worker.
    """
    return {
        "type": kind, "uuid": task_id, "name": name, "hostname": node or shared.node(), "pid": os.getpid(),
        "timestamp": time.time(), "utcoffset": utcoffset(), **fields,
    }  # fmt: skip


def _shown(value: Any) -> str:
    """Return the value's `repr` if that is short, which takes a quarter of the time of Celery's careful one."""
    text = repr(value)
    return text if len(text) <= SHOWN else saferepr(value, SHOWN)


def message(events: Sequence[Event], exchange: str) -> Mapping[str, Any]:
    """Return the message for a batch of events, in kombu's form."""
    body = base64.b64encode(json.dumps(list(events)).encode()).decode()
    return {
        "body": body, "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {"hostname": shared.node()},
        "properties": {
            "delivery_mode": 1, "priority": 0, "body_encoding": "base64", "delivery_tag": str(uuid4()),
            "delivery_info": {"exchange": exchange, "routing_key": BATCH},
        },
    }  # fmt: skip


#: Celery's routing key for a batch of events.
BATCH = "task.multi"
