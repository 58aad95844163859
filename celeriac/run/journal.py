"""The journal: what Celery's events say of rows, told by the process that knows.

Flower and every other reader of events sees rows by their own ids. Nothing is told of tickets. Of an outcome is told
after its commit, and only if it counted.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from celery.utils import uuid
from celery.utils.saferepr import saferepr
from celery.utils.time import utcoffset

from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.run.run import Run
from celeriac.settle.write import LOST
from celeriac.store.encoding import revived
from celeriac.store.started import Started
from celeriac.store.states import CANCELLED, COMPLETED, FAILED, PENDING

Event = dict[str, Any]

#: While Redis is away, the last so many wait for it.
MOST = 10_000

#: Events in one message.
MESSAGE = 500

#: Characters of arguments and results that are told; Celery's own bound.
SHOWN = 1024


class Journal:
    """Events on their way. `publish` sends some of them in one message, and says whether they went.

    Thread-safe; a forked child begins with an empty one.
    """

    def __init__(self, publish: Callable[[Sequence[Event]], bool]) -> None:
        self._publish = publish
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST)
        self._sending = threading.Lock()

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


class Told:
    """What is told of one ticket's rows. It exists only while somebody wants to hear of tasks."""

    def __init__(self, journal: Journal, role: Role) -> None:
        self.journal = journal
        self.role = role
        self._seconds: dict[int, float | None] = {}

    def received(self, tasks: Iterable[Started]) -> None:
        for task in tasks:
            self._seconds[task.id] = None
            self.journal.write(received(task))

    def started(self, task: Started) -> None:
        self.journal.write(about(task, "task-started"))

    def ran(self, task: Started, seconds: float) -> None:
        self._seconds[task.id] = seconds

    def settled(self, runs: Iterable[Run]) -> None:
        """Of each that is settled, once."""
        for run in runs:
            if run.settled and run.task.id in self._seconds:
                seconds = self._seconds.pop(run.task.id)
                if event := ended(run, seconds):
                    self.journal.write(event)

    def flush(self) -> None:
        self.journal.flush()


def told(journal: Journal, role: Role) -> Told | None:
    """None while nobody wants to hear of tasks: then a run costs nothing more."""
    return Told(journal, role) if shared.telling() else None


def ended(run: Run, seconds: float | None) -> Event | None:
    """What it came to, if that counted. None also where `release` decides, of which others tell."""
    outcome = run.outcome
    if outcome is None or run.became is None or outcome.status == LOST:
        return None
    if run.became == COMPLETED:
        return about(run.task, "task-succeeded", result=_shown(revived(outcome.result)), runtime=seconds)
    if run.became == CANCELLED:
        expired = outcome.kind == "expired"
        return about(run.task, "task-revoked", terminated=seconds is not None, signum=None, expired=expired)
    return unsuccessful(run.task, run.became, outcome.error, run.traceback)


def unsuccessful(task: Started, became: str, error: str | None, traceback: str | None = None) -> Event:
    """An attempt that ended its task (failed), or will be made again (pending)."""
    kind = {FAILED: "task-failed", PENDING: "task-retried"}[became]
    return about(task, kind, exception=error or "", traceback=traceback or "", retries=task.retry_count)


def received(task: Started) -> Event:
    canvas = (task.headers or {}).get("canvas") or {}
    return about(
        task, "task-received", args=_shown(revived(task.args)), kwargs=_shown(revived(task.kwargs)),
        root_id=canvas.get("root_id") or task.task_id, parent_id=canvas.get("parent_id"), retries=task.retry_count,
        eta=None, expires=None,
    )  # fmt: skip


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
