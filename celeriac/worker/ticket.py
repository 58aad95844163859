"""A ticket in a child process: start its rows in one statement, run them, settle them in few."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from celery.app.trace import trace_task
from celery.exceptions import Ignore

from celeriac import outcomes
from celeriac.database import outlasting
from celeriac.encoding import revived
from celeriac.errors import LeaseLost, NotSettled, Snooze, TaskCancelled
from celeriac.roles import Role
from celeriac.running import Run, running
from celeriac.verbs import register, release, start
from celeriac.verbs.claim import FEW
from celeriac.verbs.start import Started
from celeriac.worker.shared import closed, worker_id
from celeriac.worker.watch import watch

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Outcomes of small tasks wait for one another at most this long (seconds).
SETTLE_EVERY = 0.1

#: A role's measured run time is written at most this often by each process (seconds).
OBSERVE_EVERY = 0.5

_observed: dict[str, float] = {}


def run_ticket(app: Celeriac, role_name: str, ids: list[int], token: str) -> dict[str, Any]:
    """What became of the ticket, for Flower and logs. One that is not won returns quietly."""
    declared = app.roles.get(role_name)
    if declared is None:
        logger.error("Got a ticket for role %r, which this worker's code does not declare", role_name)
        return {"unknown_role": role_name}
    if closed():
        held = [release.Held(i, token) for i in ids if token]
        return {"handed_back": hand_back(app, held, "claimed")}
    if not token:
        return _start_lone(app, declared.role, ids) or _take_kick_up(app, declared.role)
    return Batch(app, declared.role).run(ids, token)


def _start_lone(app: Celeriac, role: Role, ids: list[int]) -> dict[str, Any] | None:
    """Runs the task a kick names, where that needs no pass; None where it does."""
    if not ids or not role.enabled() or role.window < 4 * FEW:
        return None
    done = Batch(app, role, is_lone=True).run(ids, str(uuid4()))
    return None if done.get("lost") else done


def _take_kick_up(app: Celeriac, role: Role) -> dict[str, Any]:
    """Runs the pass that was asked for; the first of its tickets stays here, which saves it a trip through Redis."""
    app.publisher.take_up(role.name)
    tickets = outlasting(lambda: app.dispatcher.claim(role), "run a pass")
    if not tickets:
        return {"claimed": 0}
    app.dispatcher.publish(tickets[1:])
    return Batch(app, role).run(tickets[0].ids, tickets[0].token)


def hand_back(app: Celeriac, held: Sequence[release.Held], status: Literal["claimed", "running"]) -> int:
    """Nobody ran these: they wait again, no attempt burnt."""
    with app.database.transaction() as connection:
        return len(
            release.release(
                connection,
                held,
                status=status,
                kind="handed_back",
                why="its worker had no time for it",
                by=worker_id(),
                loss=False,
            )
        )


class Batch:
    """The rows of one ticket in this process.

    Rows are taken one by one under a lock, so that the watch can hand the rest back while one takes long: small
    tasks share a ticket, long ones never wait for one another. `is_lone`: its one row is still to be claimed.
    """

    def __init__(self, app: Celeriac, role: Role, *, is_lone: bool = False) -> None:
        self.app = app
        self.role = role
        self.is_lone = is_lone
        self.asked = False
        self.owned: dict[int, Started] = {}
        self.waiting: list[Started] = []
        self.finished: list[Run] = []
        self.settled_at = time.monotonic()
        self.seconds = 0.0
        self.lock = threading.Lock()

    def run(self, ids: Sequence[int], token: str) -> dict[str, Any]:
        ran = 0
        self._start(ids, token)
        lost = len(ids) - len(self.waiting)
        try:
            while (task := self._take()) is not None:
                ran += self._run_one(task)
            self._settle()
        except BaseException as error:
            self._abandon(error)
            raise
        if ran:
            self._observe(ran)
        if ran and not closed():
            self.app.dispatcher.dispatch_if_due(self.role)
        return {"ran": ran} | ({"lost": lost} if lost else {})

    def _start(self, ids: Sequence[int], token: str) -> None:
        self.waiting = outlasting(lambda: self._own(ids, token), "start a ticket")
        self.owned = {task.id: task for task in self.waiting}
        if len(self.waiting) < len(ids):
            self._expire(ids, token)

    def _own(self, ids: Sequence[int], token: str) -> list[Started]:
        me: dict[str, Any] = {"worker_id": worker_id(), "pid": os.getpid(), "timeout": self.role.time_limit}
        me["again"], self.asked = self.asked, True
        with self.app.database.statement() as connection:
            if self.is_lone:
                return start.start_lone(connection, self.role.name, ids[0], token, **me)
            return start.start(connection, ids, token, **me)

    def _expire(self, ids: Sequence[int], token: str) -> None:
        with self.app.database.statement() as connection:
            start.expire(connection, ids, token, worker_id())

    def _take(self) -> Started | None:
        if closed():
            self.give_up_waiting()
        with self.lock:
            return self.waiting.pop(0) if self.waiting else None

    def _run_one(self, task: Started) -> int:
        run = Run(task, self.role, self.app.database)
        with watch(self, run):
            execute(self.app, run)
        self.seconds += time.monotonic() - run.began
        with self.lock:
            self.finished.append(run)
        if time.monotonic() - self.settled_at > SETTLE_EVERY:
            self._settle()
        return 1

    def _settle(self) -> None:
        with self.lock:
            runs, self.finished = self.finished, []
            self.settled_at = time.monotonic()
        self.app.settler.settle(runs)
        self._disown(run.task.id for run in runs)

    def give_up_waiting(self) -> None:
        """Settles what is done and hands back what has not begun. The watch's thread calls this, too."""
        with self.lock:
            rest, self.waiting = self.waiting, []
        if rest:
            hand_back(self.app, [release.Held(t.id, t.token) for t in rest], "running")
            self._disown(t.id for t in rest)
        self._settle()

    def _disown(self, ids: Iterable[int]) -> None:
        with self.lock:
            for i in ids:
                self.owned.pop(i, None)

    def _abandon(self, error: BaseException) -> None:
        """Something of ours broke: the rows may not stay with a process that goes on."""
        logger.error("A ticket of %s broke off: %r", self.role.name, error)
        held = [release.Held(t.id, t.token) for t in self.owned.values()]
        if isinstance(error, NotSettled):
            os._exit(1)  # the parent sees a lost child and releases what it ran
        with self.app.database.transaction() as connection:
            release.release(
                connection, held, status="running", kind="abandoned", by=worker_id(), loss=True,
                why=f"its process broke off: {error!r}"[:500],
            )  # fmt: skip

    def _observe(self, ran: int) -> None:
        now = time.monotonic()
        if self.role.chunk != "auto" or now - _observed.get(self.role.name, -1e9) < OBSERVE_EVERY:
            return
        _observed[self.role.name] = now
        with self.app.database.statement() as connection:
            register.observe(connection, self.role.name, self.seconds / ran)


def execute(app: Celeriac, run: Run) -> None:
    """Runs the row through Celery's own tracer, whose backend records the outcome in `run`."""
    task = app.tasks[run.role.name]
    args, kwargs = revived(run.task.args), revived(run.task.kwargs)
    try:
        with running(run):
            traced = trace_task(
                task, run.task.task_id, args, kwargs, _request(app, run), app=app, loader=app.loader,
                hostname=worker_id(),
            )  # fmt: skip
    except TaskCancelled:
        run.drop_session()
        run.follow_ups.clear()
        run.outcome = outcomes.cancelled(run.task)
    except LeaseLost as error:
        run.drop_session()
        run.outcome = run.outcome or outcomes.failed(run, error)  # refused by the fence, and told as an event
    else:
        if run.outcome is None and not run.settled:
            _conclude(run, traced)


def _conclude(run: Run, traced: Any) -> None:
    """Celery stores nothing for Ignore and Reject."""
    error = getattr(traced.info, "retval", None)
    run.drop_session()
    if isinstance(error, Snooze):
        run.follow_ups.clear()
        run.outcome = outcomes.snoozed(run.task, error.seconds, error.why)
    elif isinstance(error, Ignore):
        run.outcome = outcomes.completed(run, None)
    else:
        run.outcome = outcomes.failed(run, error or RuntimeError("ended without an outcome"))


def _request(app: Celeriac, run: Run) -> dict[str, Any]:
    task = run.task
    return {
        "id": task.task_id,
        "task": run.role.name,
        "retries": task.retry_count,
        "root_id": task.task_id,
        "parent_id": None,
        "hostname": worker_id(),
        "is_eager": False,
        "ignore_result": False,
        "correlation_id": task.task_id,
        "timelimit": [run.role.hard_timeout, run.timeout],
        "shadow": (task.headers or {}).get("shadow"),
        "delivery_info": {
            "exchange": "", "routing_key": run.role.queue, "priority": task.priority, "redelivered": task.losses > 0
        },
        "utc": app.conf.enable_utc,
    }  # fmt: skip
