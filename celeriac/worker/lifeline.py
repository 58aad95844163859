"""The lifeline, a thread of the parent: heartbeats, lost children, late rows, work without a wake-up, and the drain.

It has a connection of its own: handlers can use up a pool of connections, and a heartbeat must not wait for them.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from celery.bootsteps import CLOSE, RUN, TERMINATE
from sqlalchemy.exc import DBAPIError

from celeriac.counters import COUNTERS
from celeriac.dispatch import parking
from celeriac.dispatch.glance import glance
from celeriac.roles.role import Role
from celeriac.run import journal, redaction, shared
from celeriac.run import lease as heartbeat
from celeriac.run.late import HeldUp, late
from celeriac.run.lease import WorkerState
from celeriac.run.places import places
from celeriac.run.seen import PASSED_ON, SEEN
from celeriac.run.traces import forget, spare_neighbours, traces
from celeriac.settle import release
from celeriac.settle.outcome import Outcome
from celeriac.store import look
from celeriac.store.connections import Database
from celeriac.store.failures import in_a_line, is_down, is_gone, is_locked, is_passing, log_error
from celeriac.store.patience import hurried, patient
from celeriac.store.states import GONE
from celeriac.version import SCHEMA, described
from celeriac.worker import overdue, stops
from celeriac.worker.app import WorkerApp
from celeriac.worker.governor import Governor
from celeriac.worker.holdings import processes
from celeriac.worker.pulse import PULSE
from celeriac.worker.resources import Sampler
from celeriac.worker.shortage import Shortage

logger = logging.getLogger(__name__)

#: A gap, in which nobody could write: all workers are silent for so long (seconds), or for two thirds of the shortest
#: lease if that is less, and for at least `MISSED` heartbeats.
GAP = 5.0
MISSED = 2

#: Seconds that a poll waits for another transaction's lock; it leaves blocked work to the next poll.
PATIENCE = 0.5

#: Seconds until the next attempt on rows that another transaction has locked.
LOOK_AGAIN = 0.1

#: Maximum number of tasks of resumed accounts that a poll makes ready.
RESUMED = 500

#: The part of a poll's interval for which one of all workers has the turn for the post-commit checks that callers'
#: transactions left.
TURN = 0.9

#: Number of attempts that an ending worker makes to hand back rows that another transaction has locked.
LOOKS = 5

#: A worker should have ended this long (seconds) after the second of its grace periods, which is for its processes;
#: within a third of it after an insisting signal.
SLACK = 15.0

#: Seconds that an ending worker waits for the poll under way.
LAST_LOOK = 5.0

#: Pids of lost children, from the hub's thread to the lifeline's; None only wakes the lifeline.
_lost: queue.SimpleQueue[int | None] = queue.SimpleQueue()


def lost_process(pid: int | None) -> None:
    if pid is not None:
        _lost.put(pid)


class Lifeline(threading.Thread):
    """The lifeline's thread: a poll every `poll_interval`, a heartbeat every `interval()`.

    `ending`: the worker has stopped. `over`: its row says so, or cannot. `owns_process`: it may end its process.
    """

    def __init__(self, app: WorkerApp, worker: Any) -> None:
        super().__init__(name="celeriac-lifeline", daemon=True)
        self.app = app
        self.worker = worker
        self.settings = app.settings
        self.database = Database(
            app.database_url, name=f"celeriac {shared.worker_id()}", pool_size=1, on_ready=app.kick
        )
        self.dispatcher = app.dispatcher_on(self.database, shared.worker_id())
        self.ending, self.over = threading.Event(), threading.Event()
        self.sampler = Sampler()
        self.governor = Governor(app.settings, self.governed, self.ending)
        self.shortage = Shortage(app.database)
        self.next_heartbeat = 0.0
        self.next_limit = math.inf
        self.lost: set[int] = set()
        self.orphans: list[str] = []
        self.drain_until: float | None = None
        self.parted = self.owns_process = False
        self.left_behind = overdue.LeftBehind()
        self.failures = 0
        self.held_up = HeldUp(self.database)
        self.has_met_a_lock = False
        self.answered = time.monotonic()

    def run(self) -> None:
        with patient(PATIENCE):
            self._run()

    def _run(self) -> None:
        while not self.ending.is_set():
            try:
                self.look()
                self.answered = time.monotonic()
            except Exception as error:
                self.failures += 1
                gone = is_gone(error)
                if is_down(error):  # nobody can write, so nobody can rescue its rows
                    shared.renew(time.monotonic())
                message = "Postgres is away" if gone else "The lifeline broke"
                level = logging.WARNING if gone else logging.ERROR
                # A failed heartbeat has to be repeated before the lease is over.
                rest = min(self.settings.poll_interval, self.interval() / 8)
                logger.log(level, "%s; trying again in %g s", message, rest, exc_info=not is_passing(error))
                if self.owns_process and PULSE.overdue():
                    self._end_without_postgres()
                self.ending.wait(rest)
            else:
                self._wait()

    def _wait(self) -> None:
        """Wait until the next poll or heartbeat is due, the grace period is over, or something wakes it."""
        grace = math.inf if self.drain_until is None else self.drain_until
        next_time = min(self.next_heartbeat, self.next_limit, grace)
        due = min(self._every(), next_time - time.monotonic())
        due = min(due, LOOK_AGAIN) if self.orphans else due
        try:
            pid = _lost.get(timeout=max(due, 0.0))
        except queue.Empty:
            return
        lost_process(pid)

    def _every(self) -> float:
        """Return the seconds between polls: fewer if the consumer's thread acts on their results."""
        is_passed_on = places.wake is None and (places.alone or not self.app.publisher.is_open)
        return self.settings.poll_interval * (1 - PASSED_ON if is_passed_on else 1)

    def look(self) -> None:
        """Poll once. A lock that blocks one part hardly delays the others."""
        self.has_met_a_lock = False
        if self.owns_process and self.is_stopping():
            self.left_behind.look(self.processes())
        if self.owns_process:
            self.governor.lack(self.shortage.look())
            if not self.is_stopping() and self.shortage.is_leak():
                self.make_way()
        self._unless_locked(self.stop_overdue)
        self._unless_locked(self.release_lost)
        self._beat_if_due()
        if self.drain_until is None and self.is_stopping():
            self.drain()
        if self.drain_until is not None and time.monotonic() >= self.drain_until:
            self.hand_back_running()
        elif not shared.closed():
            self.find_work()

    def _unless_locked(self, act: Callable[[], object]) -> bool:
        """Do `act` and return True; False if its rows are locked, so that the next poll retries it."""
        done = True
        try:
            act()
        except DBAPIError as error:
            if not is_locked(error):
                raise
            self.held_up.say(in_a_line(error))
            self.has_met_a_lock, done = True, False
        self.answered = time.monotonic()
        return done

    # -- heartbeat -------------------------------------------------------------------------------------------------

    def interval(self) -> float:
        """Return the seconds between heartbeats: as set, but three in the shortest lease, so that two may fail."""
        return min(self.settings.heartbeat_interval, self.lease() / 3, GONE / 3)

    def gap(self) -> float:
        """Return the silence (seconds) that is a gap; a shorter one, as on a busy machine, is only lateness."""
        return max(MISSED * self.interval(), min(GAP, self.lease() * 2 / 3))

    def lease(self) -> float:
        """Return the shortest `stale_after` (seconds) of the roles served, after which their rows are rescued."""
        return min((role.stale_after for role in self.served()), default=600.0)

    def served(self) -> list[Role]:
        return self.app.roles.of_queues(self.queues())

    def _beat_if_due(self) -> None:
        if time.monotonic() >= self.next_heartbeat:
            self.beat()

    def _beat_within(self, seconds: float) -> None:
        self.next_heartbeat = min(self.next_heartbeat, time.monotonic() + seconds)

    def beat(self) -> None:
        """Report the worker and renew its leases. Either keeps the leases: see decision 38."""
        begins = time.monotonic()
        self.next_heartbeat = begins + self.interval()
        with COUNTERS.timing("sql_seconds", "heartbeat"):
            done = self._unless_locked(lambda: self._report(renews=True))
            if not done:
                done = self._unless_locked(self._renew)
                done |= self._unless_locked(lambda: self._report(renews=False))
        if done:
            shared.renew(begins)
        self._unless_locked(partial(spare_neighbours, self.database))

    def _report(self, *, renews: bool) -> None:
        with self.database.transaction() as connection:
            heartbeat.note_gap(connection, shared.worker_id(), os.getpid(), self.gap())
            standing = self.sampler.report(connection, self.state())
            if renews:
                heartbeat.renew(connection, shared.worker_id(), self.processes())
        if standing == "draining" and self.drain_until is None:
            self.decommissioned()

    def _renew(self) -> None:
        with self.database.statement() as connection:
            heartbeat.renew(connection, shared.worker_id(), self.processes())

    def state(self) -> WorkerState:
        status = "active" if self.drain_until is None else "draining"
        return WorkerState(
            worker_id=shared.worker_id(), hostname=socket.gethostname(), pid=os.getpid(), status=status,
            queues=sorted(self.queues()), concurrency=int(self.worker.concurrency or 1),
            resources=self.governor.resources() | self._more_resources(),
            version=described(self.settings.deployment),
        )  # fmt: skip

    def _more_resources(self) -> dict[str, Any]:
        overdue = {"drain_overdue": round(seconds, 1)} if (seconds := PULSE.overdue()) else {}
        shares = {"shares_process": True} if places.kind is not None else {}
        return {"node": shared.node(), "processes": self.processes(), "schema": SCHEMA} | shares | overdue

    def queues(self) -> set[str]:
        return set(self.app.amqp.queues.consume_from)

    def processes(self) -> list[int]:
        return processes(self.worker.pool)

    def stop_overdue(self) -> None:
        self.next_limit = overdue.stop(self.database, self.app.roles, self.processes(), self._report_stopped)

    def _report_stopped(self, outcome: Outcome, became: str | None) -> None:
        """Call hooks and send events for a process that is stopped, and cannot do so itself."""
        stops.tell(self.app.tasks, outcome, became)
        if became is not None and shared.telling() and journal.tells_of(self.app.tasks, outcome.task.role):
            secret = redaction.of_name(self.app.roles, outcome.task.role)
            self.app.journal.write(journal.received(outcome.task, secret))
            self.app.journal.write(journal.stopped(outcome, became, secret))
            self.app.journal.flush()

    # -- lost children ---------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Take over from a killed worker of this name; its decommission request does not apply."""
        with self.database.statement() as connection:
            heartbeat.ended(connection, shared.worker_id())
            self.orphans = release.of_process(connection, shared.worker_id(), None)

    def release_lost(self) -> None:
        """Release the tickets of lost processes. Locked ones stay in `orphans` for the next poll."""
        while not _lost.empty():
            if (pid := _lost.get()) is not None:
                self.lost.add(pid)
        while not places.orphans.empty():
            self.orphans.append(places.orphans.get())
        if not (self.lost or self.orphans):
            return
        with self.database.transaction() as connection:
            tokens = [token for pid in self.lost for token in release.of_process(connection, shared.worker_id(), pid)]
            orphans = stops.release_lost(connection, self.database.url, [*self.orphans, *tokens])
        self.lost.clear()
        self.orphans = orphans

    # -- work ------------------------------------------------------------------------------------------------------

    def find_work(self) -> None:
        """Find work that had no wake-up: due retries, tasks enqueued while Redis was away, lost wake-ups."""
        roles = {role.lane: role for role in self.served()}
        with_work = set(roles)
        self._unless_locked(lambda: with_work.intersection_update(self.glance(roles)))
        for name, role in roles.items():
            if name in with_work:
                with hurried(self.has_met_a_lock):
                    self._unless_locked(partial(self._look_for, role))
                self._beat_if_due()
        self._beat_within(self.interval())  # the queues of a running worker, and with them its lease, can change

    def glance(self, roles: Collection[str]) -> set[str]:
        """Return the roles that have work, and wake the threads of this process that wait for it."""
        with self.database.statement() as connection:
            seen = glance(connection, roles, TURN * self.settings.poll_interval)
        shared.note_limits(seen.limits)
        if seen.has_looks or seen.has_resumed:
            self._unless_locked(lambda: seen.roles.update(self.look_around()))
        with_work = seen.roles.intersection(roles)
        SEEN.note(with_work, outbox=seen.has_outbox, ring=seen.ring_is_worn, every=self.settings.poll_interval)
        return with_work

    def look_around(self) -> set[str]:
        """Run the post-commit checks that callers' transactions left, and make tasks of resumed accounts ready; return
        the roles of both.
        """
        with self.database.statement() as connection:
            has_turn = look.has_turn(connection, TURN * self.settings.poll_interval)
        with self.database.transaction() as connection:
            left = look.look(connection) if has_turn else ()
            roles = {*left, *parking.unpark(connection, RESUMED)}
        if roles:
            self.app.kick(roles)
        return roles

    def _look_for(self, role: Role) -> None:
        if role.prompt and places.wake is None and not places.alone:
            self.dispatcher.dispatch_if_due(role)
        elif not role.prompt and self.dispatcher.has_due(role):
            self.dispatcher.resume(role)

    def governed(self) -> None:
        """Report at once that a back-off began or ended; wake the hub, which may sleep long, to check its gate."""
        self.next_heartbeat = 0.0
        _lost.put(None)
        if (hub := getattr(self.worker, "hub", None)) is not None:
            hub.call_soon(lambda: None)

    # -- drain -----------------------------------------------------------------------------------------------------

    def drain(self, *, at_once: bool = False) -> None:
        """Begin the drain: take nothing more, finish within the grace period, which another signal does not prolong.
        Called in a signal handler. `at_once`: the grace period is over.
        """
        shared.drain()
        ends = time.monotonic() + (0.0 if at_once else self.settings.drain_grace)
        self.drain_until = ends if self.drain_until is None else min(ends, self.drain_until)
        allowed = SLACK / 3 if at_once else 2 * self.settings.drain_grace + SLACK
        PULSE.ends = min(PULSE.ends, time.monotonic() + allowed)
        self.next_heartbeat = 0.0
        _lost.put(None)

    def is_stopping(self) -> bool:
        """Return whether the worker stops; also without a signal, by `control shutdown` or an error of its consumer."""
        return shared.draining() or getattr(getattr(self.worker, "blueprint", None), "state", RUN) in (CLOSE, TERMINATE)

    def decommissioned(self) -> None:
        """Begin the drain that an operator requested in SQL, by SIGTERM."""
        logger.warning("Worker %s is decommissioned: it finishes what it has and ends", shared.worker_id())
        os.kill(os.getpid(), signal.SIGTERM)

    def make_way(self) -> None:
        """Drain and end for lack of file descriptors, so that the supervisor starts the worker again."""
        if not self.is_stopping():
            logger.critical("Worker %s has hardly a file descriptor left: it finishes what it has", shared.worker_id())
            shared.drain()
            os.kill(os.getpid(), signal.SIGTERM)

    def hand_back_running(self) -> None:
        """End the grace period: free the rows, then end the processes; a run that still finishes is refused."""
        for _ in range(LOOKS):
            if not stops.hand_back(self.database, self.app, self.processes()):
                break
            time.sleep(LOOK_AGAIN)  # a child may be settling a locked row; a row that stays locked is rescued
        self.drain_until = time.monotonic() + self.settings.drain_grace + 1
        self._kill_children()
        if self.parted and (places.kind is not None or self.owns_process):
            self._end()
        self.parted = True

    def _kill_children(self) -> None:
        for pid in self.processes():
            if pid != os.getpid():
                overdue.kill(pid)

    def _end(self) -> None:
        """End the process: Celery would wait for a handler that still runs, as it blocks or ignores its interrupt."""
        logger.error("Worker %s ends although a task goes on; the task is handed back", shared.worker_id())
        overdue.stop_all(overdue.below(os.getpid()))
        try:
            self._report_end()
        finally:
            stops.end()

    def _end_without_postgres(self) -> None:
        """End the process, as Postgres was away during the whole drain. Running tasks are rescued after their lease."""
        logger.error("Worker %s ends, and cannot report that to Postgres", shared.worker_id())
        self._kill_children()
        overdue.stop_all(overdue.below(os.getpid()))
        stops.end()

    def stopped(self) -> None:
        """Report the end once, after the last heartbeat, which would overwrite it."""
        if self.ending.is_set():
            return
        self.ending.set()
        SEEN.wake()
        _lost.put(None)
        try:
            if self.is_alive():
                self.join(LAST_LOOK)
            self._report_and_part()
        finally:
            traces.keep(on=False)
            forget(self.database.url, shared.worker_id())
            if self.owns_process:
                stops.end_within(self.settings.drain_grace + 1)
            self.over.set()

    def spare(self) -> None:
        """Note the child processes that were there before the first task: no task has started them."""
        if self.owns_process:
            self.left_behind.spare(self.processes())

    def _report_and_part(self) -> None:
        """Report the end, then log or stop the processes that tasks may have started; errors there are only logged."""
        try:
            self._report_end()
        finally:
            try:
                self.left_behind.part(stops=self.parted)
            except Exception as error:
                log_error(logger, error, "The processes that the worker leaves behind could not be listed")

    def _report_end(self) -> None:
        late.finish()
        stops.hand_back_unstarted(self.database)
        with self.database.statement() as connection:
            heartbeat.report(connection, replace(self.state(), status="stopped"))
