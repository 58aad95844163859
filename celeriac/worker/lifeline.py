"""The parent's thread: heartbeats, lost children, late rows, work nobody kicked for, and the drain.

It has a connection of its own: handlers' pools can run dry, and a heartbeat must not wait for them.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery import bootsteps, signals
from celery.worker.state import reserved_requests
from sqlalchemy import Connection

from celeriac.dispatch.passes import Dispatcher
from celeriac.errors import ConfigurationError
from celeriac.roles.role import Role
from celeriac.run import lease as heartbeat
from celeriac.run.lease import WorkerState
from celeriac.run.start import Started
from celeriac.settle import outcomes, release, write
from celeriac.store.connections import Database
from celeriac.store.failures import is_gone
from celeriac.store.migrate import unapplied
from celeriac.worker import shared
from celeriac.worker.governor import Governor
from celeriac.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: After so long without a heartbeat (seconds) passes and capacity take a worker for gone.
GONE = 120.0

#: How soon (seconds) rows are looked at again that somebody had locked.
LOOK_AGAIN = 0.1
LOOKS = 5

#: Pids of lost children, from the hub's thread to the lifeline's.
_lost: queue.SimpleQueue[int] = queue.SimpleQueue()


def lost_process(pid: int | None) -> None:
    if pid is not None:
        _lost.put(pid)


class Lifeline(threading.Thread):
    """One pass a look (`poll_interval`), a heartbeat every `interval()`."""

    def __init__(self, app: Celeriac, worker: Any) -> None:
        super().__init__(name="celeriac-lifeline", daemon=True)
        self.app = app
        self.worker = worker
        self.settings = app.settings
        self.database = Database(app.database_url, name=f"celeriac {shared.worker_id()}", pool_size=1)
        self.dispatcher = Dispatcher(self.database, app.publisher, shared.worker_id())
        self.governor = Governor(app.settings, self.governed)
        self.next_heartbeat = 0.0
        self.lost: set[int] = set()
        self.orphans: list[release.Held] = []
        self.drain_until: float | None = None
        self.answered = time.monotonic()

    def run(self) -> None:
        while True:
            try:
                self.look()
                self.answered = time.monotonic()
            except Exception as error:
                gone = is_gone(error)
                says = "Postgres is away" if gone else "The lifeline broke"
                level = logging.WARNING if gone else logging.ERROR
                # A heartbeat that failed has to come through before the lease is over.
                rest = min(self.settings.poll_interval, self.interval() / 8)
                logger.log(level, "%s; trying again in %g s", says, rest, exc_info=not gone)
                time.sleep(rest)
            else:
                self._wait()

    def _wait(self) -> None:
        """Until the next look or heartbeat is due or a child is lost."""
        due = min(self.settings.poll_interval, self.next_heartbeat - time.monotonic())
        due = min(due, LOOK_AGAIN) if self.orphans else due
        try:
            _lost.put(_lost.get(timeout=max(due, 0.0)))
        except queue.Empty:
            return

    def look(self) -> None:
        self.release_lost()
        self._beat_if_due()
        if self.drain_until is not None and time.monotonic() >= self.drain_until:
            self.hand_back_running()
        elif not shared.closed():
            self.find_work()

    # -- heartbeat -------------------------------------------------------------------------------------------------

    def interval(self) -> float:
        """Seconds between heartbeats: as set, but three in the shortest lease, so that two may be late."""
        return min(self.settings.heartbeat_interval, self.lease() / 3, GONE / 3)

    def lease(self) -> float:
        """The shortest `stale_after` (seconds) of the roles served here: after so much silence rows are rescued."""
        return min((role.stale_after for role in self.served()), default=600.0)

    def served(self) -> list[Role]:
        queues = self.queues()
        return [declared.role for declared in self.app.roles.all() if declared.role.queue in queues]

    def _beat_if_due(self) -> None:
        if shared.overdue() or time.monotonic() >= self.next_heartbeat:
            self.beat()

    def _beat_within(self, seconds: float) -> None:
        self.next_heartbeat = min(self.next_heartbeat, time.monotonic() + seconds)

    def beat(self) -> None:
        """Reports the worker, renews its rows, ends what is past its limit."""
        self.next_heartbeat = time.monotonic() + self.interval()
        shared.say_overdue(on=False)
        pids = self.processes()
        with self.database.transaction() as connection:
            standing = heartbeat.report(connection, self.state())
            rows = heartbeat.renew(connection, shared.worker_id(), pids, grace=0.0)
        self._look_at_deadlines(rows)
        if standing == "draining" and self.drain_until is None:
            self.decommissioned()

    def _look_at_deadlines(self, rows: list[heartbeat.Running]) -> None:
        """Ends what is past its hard limit; with tasks under one, the next heartbeat is soon enough to enforce it."""
        for pid in {row.pid for row in rows if row.overdue}:
            self.stop_overdue(pid)
        if any(row.overdue is not None for row in rows):
            self._beat_within(max(self.settings.time_limit_grace, self.settings.poll_interval))

    def state(self) -> WorkerState:
        status = "active" if self.drain_until is None else "draining"
        return WorkerState(
            worker_id=shared.worker_id(), hostname=socket.gethostname(), pid=os.getpid(), status=status,
            queues=sorted(self.queues()), concurrency=int(self.worker.concurrency or 1),
            resources=self.governor.resources(),
        )  # fmt: skip

    def queues(self) -> set[str]:
        return set(self.app.amqp.queues.consume_from)

    def processes(self) -> list[int]:
        pool = self.worker.pool
        return list((pool.info if pool else {}).get("processes") or [os.getpid()])

    def stop_overdue(self, pid: int) -> None:
        """Past its hard limit a process has to go. Its rows count as timed out, not as lost."""
        with self.database.transaction() as connection:
            rows = [row.task for row in release.rows_of(connection, shared.worker_id(), pid) if row.overdue]
            roles = {task.role: declared.role for task in rows if (declared := self.app.roles.get(task.role))}
            late = [task for task in rows if task.role in roles and self._is_over(connection, task, roles[task.role])]
            write.settle(connection, [outcomes.timed_out(t, roles[t.role]) for t in late], shared.worker_id())
        if late:
            logger.error("Process %d is past its time limit and is stopped", pid)
            _kill(pid)

    def _is_over(self, connection: Connection, task: Started, role: Role) -> bool:
        """Whether its hard limit is; if not, there is a heartbeat when it will be."""
        standing = heartbeat.standing(connection, task.id, task.token)
        if standing is None or standing.left is None:
            return False
        left = standing.left + role.grace(task.timeout, self.settings.time_limit_grace)
        self._beat_within(max(left, 0.0))
        return left <= 0

    # -- lost children ---------------------------------------------------------------------------------------------

    def succeed(self) -> None:
        """A worker of this name was killed: its processes are lost, and what was asked of it is not asked of us."""
        with self.database.statement() as connection:
            heartbeat.ended(connection, shared.worker_id())
            self.orphans = release.of_process(connection, shared.worker_id(), None)

    def release_lost(self) -> None:
        """What lost processes ran. Rows that are locked a release passes over: orphans until the next look."""
        while not _lost.empty():
            self.lost.add(_lost.get())
        if not (self.lost or self.orphans):
            return
        with self.database.transaction() as connection:
            found = [held for pid in self.lost for held in release.of_process(connection, shared.worker_id(), pid)]
            orphans = self._release(
                connection, [*self.orphans, *found], "worker_lost", "its process was lost", loss=True
            )
        self.lost.clear()
        self.orphans = orphans

    def _release(
        self, connection: Connection, held: list[release.Held], kind: str, why: str, *, loss: bool
    ) -> list[release.Held]:
        """Those that somebody had locked."""
        release.release(connection, held, status="running", kind=kind, why=why, by=shared.worker_id(), loss=loss)
        kept = release.still_running(connection, held)
        return [row for row in held if row.id in kept]

    # -- work ------------------------------------------------------------------------------------------------------

    def find_work(self) -> None:
        """The safety net under kicks: due retries, work enqueued while Redis was away, a kick that was lost."""
        for role in self.served():
            self._look_for(role)
            self.answered = time.monotonic()
            self._beat_if_due()
        self._beat_within(self.interval())  # its queues can change while it runs

    def _look_for(self, role: Role) -> None:
        if role.eager:
            self.dispatcher.dispatch_if_due(role)
        elif self.dispatcher.has_due(role):
            self.dispatcher.resume(role)

    def governed(self) -> None:
        """A back-off began or ended: that is told at once, and the hub, which may sleep for seconds, looks again."""
        self.next_heartbeat = 0.0
        if (hub := getattr(self.worker, "hub", None)) is not None:
            hub.call_soon(lambda: None)

    # -- drain -----------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Called in a signal handler: take nothing more, finish within the grace period."""
        shared.drain()
        self.drain_until = time.monotonic() + self.settings.drain_grace
        self.next_heartbeat = 0.0

    def decommissioned(self) -> None:
        """Asked in SQL to end: as on SIGTERM, which Celery answers by draining."""
        logger.warning("Worker %s is decommissioned: it finishes what it has and ends", shared.worker_id())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def hand_back_running(self) -> None:
        """The grace period is over: free the rows first, then end the processes; their late finish is refused."""
        for _ in range(LOOKS):
            with self.database.transaction() as connection:
                held = release.of_process(connection, shared.worker_id(), None)
                kept = self._release(connection, held, "handed_back", "its worker stopped", loss=False)
            if not kept:
                break
            time.sleep(LOOK_AGAIN)  # what a child settles just now is locked; what stays so is rescued
        self.drain_until = time.monotonic() + self.settings.drain_grace + 1
        for pid in self.processes():
            if pid != os.getpid():
                _kill(pid)

    def hand_back_unstarted(self) -> None:
        """Tickets this process has taken from Redis and no child has begun."""
        tickets = [request.args for request in list(reserved_requests)]
        held = [release.Held(i, token) for _, ids, token in tickets if token for i in ids]
        with self.database.transaction() as connection:
            release.release(
                connection, held, status="claimed", kind="handed_back", why="its worker stopped",
                by=shared.worker_id(), loss=False,
            )  # fmt: skip

    def stopped(self) -> None:
        self.hand_back_unstarted()
        with self.database.statement() as connection:
            state = self.state()
            heartbeat.report(connection, WorkerState(**_fields(state) | {"status": "stopped"}))


class LifelineStep(bootsteps.StartStopStep):
    """Starts the lifeline once the pool is there; it lives until the process ends."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self.lifeline: Lifeline | None = None
        # The children are forked with them.
        shared.drain(on=False)
        shared.back_off(on=False)
        shared.name_worker(worker.app.settings.worker_id or shared.fresh_name(worker.hostname))

    def start(self, worker: Any) -> None:
        app = worker.app
        refuse_old_schema(app)
        app.register_roles()
        self.lifeline = lifeline = Lifeline(app, worker)
        if app.settings.worker_id:
            lifeline.succeed()
        lifeline.governor.look()
        lifeline.beat()
        lifeline.start()
        lifeline.governor.start()
        Watchdog(lifeline).start()
        _on(signals.worker_shutting_down, lifeline.drain)
        _on(signals.worker_shutdown, lifeline.stopped)


def refuse_old_schema(app: Celeriac) -> None:
    """Raises ConfigurationError if migrations are missing."""
    with app.database.statement() as connection:
        if missing := unapplied(connection, app.migrations):
            raise ConfigurationError(f"the schema lacks {', '.join(sorted(missing))}: run `celeriac migrate`")


def _on(heard: Any, act: Callable[[], None]) -> None:
    heard.connect(lambda **_: act(), weak=False)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        logger.info("Process %d had gone already", pid)


def _fields(state: WorkerState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in WorkerState.__slots__}
