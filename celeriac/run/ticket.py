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
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.dispatch.claim import FEW
from celeriac.errors import LeaseLost, NotSettled, Snooze, TaskCancelled
from celeriac.roles import registry
from celeriac.roles.role import Role
from celeriac.run import start
from celeriac.run.run import Run, running
from celeriac.run.start import Started
from celeriac.run.watch import LOOK_EVERY, watch
from celeriac.settle import outcomes, release
from celeriac.store.encoding import revived
from celeriac.store.failures import is_gone, outlasting, past_deadlocks
from celeriac.worker.shared import closed, worker_id

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Outcomes of small tasks wait for one another at most this long (seconds).
SETTLE_EVERY = 0.1

#: A role's measured run time is written at most this often by each process (seconds).
OBSERVE_EVERY = 0.5

#: How often a ticket that broke off tries to release rows that somebody has locked.
LOOKS = 8

_observed: dict[str, float] = {}


def run_ticket(app: Celeriac, role_name: str, ids: list[int], token: str) -> dict[str, Any]:
    """What became of the ticket, for Flower and logs. One that is not won returns quietly."""
    declared = app.roles.get(role_name)
    if declared is None:
        logger.error("Got a ticket for role %r, which this worker's code does not declare", role_name)
        return {"unknown_role": role_name}
    if closed():
        rows = [release.Held(i, token) for i in ids if token]
        with app.database.transaction() as connection:
            return {"handed_back": hand_back(connection, rows, "claimed")}
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


def hand_back(connection: Connection, held: Sequence[release.Held], status: Literal["claimed", "running"]) -> int:
    """Nobody ran these: they wait again, no attempt burnt. How many; not those that somebody has locked."""
    freed = release.release(
        connection, held, status=status, kind="handed_back", why="its worker had no time for it", by=worker_id(),
        loss=False,
    )  # fmt: skip
    return len(freed)


def held(tasks: Iterable[Started]) -> list[release.Held]:
    return [release.Held(task.id, task.token) for task in tasks]


class Batch:
    """The rows of one ticket in this process.

    Rows are taken one by one under a lock, so that the watch can hand the rest back while one takes long: small
    tasks share a ticket, long ones never wait for one another. `is_lone`: its one row is still to be claimed.

    INVARIANT: the lock is held until Postgres has answered, and a row leaves `waiting` or `finished` only then. What
    it did not take, the next look or the end of the run says again.
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
        self.handing_back = False
        self.begun: int | None = None
        self.lock = threading.RLock()

    def run(self, ids: Sequence[int], token: str) -> dict[str, Any]:
        ran = 0
        try:
            lost = self._start(ids, token)
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

    def _start(self, ids: Sequence[int], token: str) -> int:
        """How many are not this process's to run."""
        self.waiting = outlasting(lambda: self._own(ids, token), "start a ticket")
        self.owned = {task.id: task for task in self.waiting}
        lost = len(ids) - len(self.waiting)
        self.begun = None if lost else next(iter(ids), None)
        if lost:
            outlasting(lambda: past_deadlocks(lambda: self._expire(ids, token)), "cancel what has expired")
        return lost

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
        while (task := self._next()) is not None and not self._begin(task):
            self._disown([task.id])
        return task

    def _next(self) -> Started | None:
        with self.lock:
            while self.waiting and (closed() or self.handing_back):
                self._part_with_waiting()
            return self.waiting.pop(0) if self.waiting else None

    def _part_with_waiting(self) -> None:
        """A worker that is closed keeps what it cannot hand back, and begins none of it."""
        outlasting(lambda: past_deadlocks(self._hand_back_waiting), "hand a ticket back")
        self._settle()
        if self.waiting and closed():
            time.sleep(LOOK_EVERY)

    def _begin(self, task: Started) -> bool:
        """A time limit counts from here; False if the row is somebody else's by now. Without one nothing is said."""
        timeout = self.role.timeout if task.timeout is None else task.timeout
        if timeout is None or task.id == self.begun:
            return True
        return outlasting(lambda: self._limit(task, timeout), "begin a task")

    def _limit(self, task: Started, timeout: float) -> bool:
        with self.app.database.statement() as connection:
            return start.begin(connection, task.id, task.token, timeout)

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
            self.settled_at = time.monotonic()
            self.app.settler.settle(self.finished)
            self._disown(run.task.id for run in self.finished)
            self.finished = []

    def give_up_waiting(self) -> None:
        """Hands back what has not begun and settles what is done. The watch calls this, again and again."""
        with self.lock:
            self._hand_back_waiting()
            try:
                self._settle()
            except (DBAPIError, NotSettled) as error:
                logger.warning("The end of the run settles what its watch could not: %s", error)

    def _hand_back_waiting(self) -> None:
        """What somebody has locked stays. Without an answer nothing says whose the rows are: none may begin then."""
        if not self.waiting:
            return
        self.handing_back = True
        kept = self._hand_back(held(self.waiting))
        self.handing_back = False
        self._disown(task.id for task in self.waiting if task.id not in kept)
        self.waiting = [task for task in self.waiting if task.id in kept]

    def _hand_back(self, rows: Sequence[release.Held]) -> set[int]:
        with self.app.database.transaction() as connection:
            if hand_back(connection, rows, "running") == len(rows):
                return set()
            return release.still_running(connection, rows)

    def _disown(self, ids: Iterable[int]) -> None:
        for i in ids:
            self.owned.pop(i, None)

    def _abandon(self, error: BaseException) -> None:
        """Something of ours broke: the rows may not stay with a process that goes on, nor the process with them."""
        logger.error("A ticket of %s broke off: %r", self.role.name, error)
        if not self._released(error):
            os._exit(1)  # the parent sees a lost child and releases what it ran

    def _released(self, error: BaseException) -> bool:
        """Whether none of the rows is this process's any more. Who outlasted Postgres in vain need not ask."""
        if isinstance(error, NotSettled) or is_gone(error):
            return False
        try:
            return any(not self._release(f"its process broke off: {error!r}"[:500]) for _ in range(LOOKS))
        except BaseException:
            logger.exception("The rows of a ticket of %s could not be released", self.role.name)
            return False

    def _release(self, why: str) -> set[int]:
        """Which rows somebody has locked just now: a moment later they can be released, too."""
        with self.lock, self.app.database.transaction() as connection:
            rows = held(self.owned.values())
            release.release(connection, rows, status="running", kind="abandoned", by=worker_id(), loss=True, why=why)
            kept = release.still_running(connection, rows)
        if kept:
            time.sleep(LOOK_EVERY)
        return kept

    def _observe(self, ran: int) -> None:
        now = time.monotonic()
        if self.role.chunk != "auto" or now - _observed.get(self.role.name, -1e9) < OBSERVE_EVERY:
            return
        _observed[self.role.name] = now
        with self.app.database.statement() as connection:
            registry.observe(connection, self.role.name, self.seconds / ran)


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
