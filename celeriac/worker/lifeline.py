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

from celeriac import outcomes
from celeriac.database import Database, is_gone
from celeriac.dispatcher import Dispatcher
from celeriac.errors import ConfigurationError
from celeriac.migrate import unapplied
from celeriac.roles import Role
from celeriac.verbs import heartbeat, release, settle
from celeriac.verbs.heartbeat import WorkerState
from celeriac.worker import shared
from celeriac.worker.governor import Governor

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Pids of lost children, from the hub's thread to the lifeline's.
_lost: queue.SimpleQueue[int] = queue.SimpleQueue()


def lost_process(pid: int | None) -> None:
    if pid is not None:
        _lost.put(pid)


class Lifeline(threading.Thread):
    """One pass a look (`poll_interval`), a heartbeat every `heartbeat_interval`."""

    def __init__(self, app: Celeriac, worker: Any) -> None:
        super().__init__(name="celeriac-lifeline", daemon=True)
        self.app = app
        self.worker = worker
        self.settings = app.settings
        self.database = Database(app.database_url, name=f"celeriac {shared.worker_id()}", pool_size=1)
        self.dispatcher = Dispatcher(self.database, app.publisher, shared.worker_id())
        self.governor = Governor(app.settings, self.governed)
        self.next_heartbeat = 0.0
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
                logger.log(level, "%s; trying again in %g s", says, self.settings.poll_interval, exc_info=not gone)
            self._wait()

    def _wait(self) -> None:
        """Until the next look is due or a child is lost."""
        try:
            _lost.put(_lost.get(timeout=self.settings.poll_interval))
        except queue.Empty:
            return

    def look(self) -> None:
        self.release_lost()
        if time.monotonic() >= self.next_heartbeat:
            self.beat()
        if self.drain_until is not None and time.monotonic() >= self.drain_until:
            self.hand_back_running()
        elif not shared.closed():
            self.find_work()

    # -- heartbeat -------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Reports the worker, renews its rows, ends what is past its limit."""
        self.next_heartbeat = time.monotonic() + self.settings.heartbeat_interval
        pids = self.processes()
        with self.database.transaction() as connection:
            standing = heartbeat.report(connection, self.state())
            rows = heartbeat.renew(connection, shared.worker_id(), pids, self.settings.time_limit_grace)
        for pid in {row.pid for row in rows if row.overdue}:
            self.stop_overdue(pid)
        self._look_at_deadlines(rows)
        if standing == "draining" and self.drain_until is None:
            self.decommissioned()

    def _look_at_deadlines(self, rows: list[heartbeat.Running]) -> None:
        """With tasks under a time limit, the next heartbeat is soon enough to enforce it."""
        if any(row.overdue is not None for row in rows):
            soon = time.monotonic() + max(self.settings.time_limit_grace, self.settings.poll_interval)
            self.next_heartbeat = min(self.next_heartbeat, soon)

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
        """The handler did not stop at its limit: its process has to. Its rows count as timed out, not as lost."""
        with self.database.transaction() as connection:
            late = [t for t in release.rows_of(connection, shared.worker_id(), pid) if t.overdue]
            verdicts = [self._timed_out(row) for row in late]
            settle.settle(connection, [v for v in verdicts if v is not None], shared.worker_id())
        logger.error("Process %d is past its time limit and is stopped", pid)
        _kill(pid)

    def _timed_out(self, row: release.RunningRow) -> settle.Outcome | None:
        declared = self.app.roles.get(row.task.role)
        return outcomes.timed_out(row.task, declared.role) if declared else None

    # -- lost children ---------------------------------------------------------------------------------------------

    def release_lost(self) -> None:
        while not _lost.empty():
            pid = _lost.get()
            try:
                self._release(pid, kind="worker_lost", why="its process was lost", loss=True)
            except Exception:
                _lost.put(pid)
                raise

    def _release(self, pid: int | None, *, kind: str, why: str, loss: bool) -> None:
        with self.database.transaction() as connection:
            held = release.of_process(connection, shared.worker_id(), pid)
            release.release(connection, held, status="running", kind=kind, why=why, by=shared.worker_id(), loss=loss)

    # -- work ------------------------------------------------------------------------------------------------------

    def find_work(self) -> None:
        """The safety net under kicks: due retries, work enqueued while Redis was away, a kick that was lost."""
        queues = self.queues()
        for declared in self.app.roles.all():
            if declared.role.queue in queues:
                self._look_for(declared.role)

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
        self._release(None, kind="handed_back", why="its worker stopped", loss=False)
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


class Watchdog(threading.Thread):
    """A frozen Postgres hangs a client for ever. No answer for too long ends the connection, so that others take over.

    `limit`: seconds; at most half of the shortest `stale_after`, so that the rows are not rescued under a live worker.
    """

    def __init__(self, lifeline: Lifeline, limit: float) -> None:
        super().__init__(name="celeriac-watchdog", daemon=True)
        self.lifeline = lifeline
        self.limit = limit

    def run(self) -> None:
        while True:
            time.sleep(min(self.limit / 4, 5.0))
            if time.monotonic() - self.lifeline.answered > self.limit:
                logger.error("Postgres has not answered for %g s; dropping the heartbeat's connection", self.limit)
                self.lifeline.answered = time.monotonic()
                shut_sockets(self.lifeline.database)


def shut_sockets(database: Database) -> None:
    """Ends what blocks on them: the blocked call raises, and the next one connects anew."""
    for connection in database.open_connections():
        with socket.socket(fileno=os.dup(connection.fileno())) as held:
            held.shutdown(socket.SHUT_RDWR)


class LifelineStep(bootsteps.StartStopStep):
    """Starts the lifeline once the pool is there; it lives until the process ends."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self.lifeline: Lifeline | None = None
        # The children are forked with them.
        shared.drain(on=False)
        shared.back_off(on=False)
        given = worker.app.settings.worker_id
        shared.name_worker(given or f"{worker.hostname}:{os.getpid()}")

    def start(self, worker: Any) -> None:
        app = worker.app
        refuse_old_schema(app)
        app.register_roles()
        self.lifeline = lifeline = Lifeline(app, worker)
        lifeline.governor.look()
        lifeline.beat()
        lifeline.start()
        lifeline.governor.start()
        stale_after = min((d.role.stale_after for d in app.roles.all()), default=600.0)
        Watchdog(lifeline, stale_after / 2).start()
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
