"""The journal: what Celery's events say of rows, told by the process that knows.

Flower and every other reader of events sees rows by their own ids. Nothing is told of tickets.
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

from celery.utils import uuid
from celery.utils.saferepr import saferepr
from celery.utils.time import utcoffset

from celeriac.run import shared
from celeriac.run.run import Run
from celeriac.settle.outcome import LOST, Outcome
from celeriac.store.encoding import legible
from celeriac.store.forks import after_fork
from celeriac.store.redact import without
from celeriac.store.sensitive import Sensitive
from celeriac.store.started import Started, masked
from celeriac.store.states import CANCELLED, COMPLETED, FAILED, PENDING

logger = logging.getLogger(__name__)

Event = dict[str, Any]

#: While Redis is away, the last so many wait for it.
MOST = 10_000

#: How often (seconds) a process says that it leaves tasks out.
TELL_EVERY = 60.0

#: Events in one message.
MESSAGE = 500

#: Characters of arguments and results that are told; Celery's own bound.
SHOWN = 1024


class Journal:
    """Events on their way. `publish` sends some of them in one message, and says whether they went.

    Thread-safe; a forked child begins with an empty one. `rate`: of how many tasks a second it tells.
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
        """Whether it tells of one more task in this second. That it leaves some out it says once a minute."""
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
        """Sends what there is. If Redis does not take it, it waits for the next flush."""
        with self._sending:
            while self._events:
                some = [self._events.popleft() for _ in range(min(len(self._events), MESSAGE))]
                if not self._publish(some):
                    self._events.extendleft(reversed(some[: MOST - len(self._events)]))
                    return


def ended(run: Run, seconds: float | None, secret: Sensitive | None = None) -> Event | None:
    """What it came to, if that counted. None also where `release` decides, of which the herald tells."""
    if run.outcome is None or run.became is None or run.outcome.status == LOST:
        return None
    return came_to(run.outcome, run.became, seconds, run.traceback, secret, run.error_repr)


def stopped(outcome: Outcome, became: str, secret: Sensitive | None = None) -> Event:
    """From outside: its own process tells nothing any more."""
    return came_to(outcome, became, seconds=0.0, secret=secret)


def came_to(
    outcome: Outcome, became: str, seconds: float | None, traceback: str | None = None,
    secret: Sensitive | None = None, error_repr: str | None = None,
) -> Event:  # fmt: skip
    """`seconds`: how long it ran; None if it did not begin. `error_repr`: of its exception, as Celery's events say."""
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
    """Of an error that nothing was raised for."""
    match encoded_error:
        case {"exc_type": kind, "exc_message": [*said]}:
            return f"{kind}({', '.join(map(repr, said))})"
    return None


def _result(outcome: Outcome, secret: Sensitive | None) -> Any:
    """Its result."""
    if secret is None:
        return outcome.result
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
    """As they are shown: as the call said (Celery's `argsrepr` and `kwargsrepr`), if it did.

    A row has all arguments by name, whichever way they were given: who masks some of them masks all.
    """
    if masked(headers):
        said = headers or {}
        return {"args": said.get("argsrepr", "..."), "kwargs": said.get("kwargsrepr", "...")}
    if secret is not None:
        args, kwargs = secret.call(args, kwargs)
    return {"args": _shown(legible(args)), "kwargs": _shown(legible(kwargs))}


def about(task: Started, kind: str, **fields: Any) -> Event:
    """The name is in every event: Flower, started anew, may not have heard the first."""
    return event(kind, task.task_id, (task.headers or {}).get("shadow") or task.role, **fields)


def event(kind: str, task_id: str, name: str, node: str | None = None, **fields: Any) -> Event:
    """`node`: the worker it happened at, if not this one. Flower makes a worker of whatever name is said here."""
    return {
        "type": kind, "uuid": task_id, "name": name, "hostname": node or shared.node(), "pid": os.getpid(),
        "timestamp": time.time(), "utcoffset": utcoffset(), **fields,
    }  # fmt: skip


def _shown(value: Any) -> str:
    """As `repr` where that is short, which costs a quarter of Celery's careful one."""
    text = repr(value)
    return text if len(text) <= SHOWN else saferepr(value, SHOWN)


def message(events: Sequence[Event], exchange: str) -> Mapping[str, Any]:
    """The envelope of a batch of events, as kombu has it."""
    body = base64.b64encode(json.dumps(list(events)).encode()).decode()
    return {
        "body": body, "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {"hostname": shared.node()},
        "properties": {
            "delivery_mode": 1, "priority": 0, "body_encoding": "base64", "delivery_tag": uuid(),
            "delivery_info": {"exchange": exchange, "routing_key": BATCH},
        },
    }  # fmt: skip


#: Celery's routing key of a batch.
BATCH = "task.multi"
