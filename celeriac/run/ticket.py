"""Run a ticket in a child process: start its rows in one statement, run them, settle them in a few statements."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.dispatch.publish import Ticket
from celeriac.errors import NotSettled
from celeriac.roles import registry
from celeriac.roles.role import Role
from celeriac.run import outlets, start
from celeriac.run.app import RunApp
from celeriac.run.execute import Direct, directly
from celeriac.run.late import Delayed, late
from celeriac.run.limited import Heeded
from celeriac.run.places import BRIEF, Place, places
from celeriac.run.reporting import reporter
from celeriac.run.run import Run
from celeriac.run.shared import closed, limiting, noting, renewed, worker_id
from celeriac.run.traces import traces
from celeriac.run.watch import LOOK_EVERY, watch
from celeriac.settle import release
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from celeriac.store.failures import (
    in_a_line,
    is_gone,
    is_locked,
    is_refused_for_now,
    log_error,
    retry_while_away,
)
from celeriac.store.patience import DEFAULT, PATIENCE, patient

logger = logging.getLogger(__name__)

#: Maximum seconds for which outcomes of small tasks are collected before they are written.
SETTLE_EVERY = 0.1

#: A role's measured run time is written at most this often by each process (seconds).
OBSERVE_EVERY = 0.5

#: Seconds that a start and an outcome wait for another transaction's lock before they are left for later.
START, OUTCOME = 0.2, 0.5

#: Number of attempts that an interrupted ticket makes to release rows that another transaction has locked.
LOOKS = 8

#: A run whose lease is not renewed is stopped when this share of the lease is over.
LEASE_USED = 0.8

#: When the run time of a role, in a database, was last written (monotonic seconds).
_observed: dict[tuple[str, str], float] = {}


def hand_back(
    connection: Connection, tokens: Sequence[str], *, started: bool, only: Sequence[int] | None = None
) -> list[release.Freed]:
    """Hand back tasks that nobody ran: they wait again, and no attempt is used up. Locked tickets are skipped."""
    return release.release(
        connection, tokens, only=only, started=started, kind="handed_back", why="its worker had no time for it",
        by=worker_id(), loss=False,
    )  # fmt: skip


class TicketRun:
    """The tasks of one ticket in this process.

    `ask` claims or starts them under the token and returns those that are this process's to run; it is called with
    `again` if an answer was lost. Tasks are taken one by one under a lock, so that the watch can hand the rest back
    while one takes long: small tasks share a ticket, long ones never wait for one another. INVARIANT: the lock is held
    until Postgres has answered, and a task leaves `waiting` or `finished` only then. What Postgres did not acknowledge
    is sent again by the watch, or at the end of the run.
    """

    def __init__(self, app: RunApp, role: Role, token: str, ask: Callable[[bool], Sequence[Started]]) -> None:
        self.app = app
        self.role = role
        self.token = token
        self.ask = app.receive(role, ask)
        self.started_at = time.monotonic()
        self.owned: set[int] | None = None  # unknown until the start is answered
        self.waiting: list[Started] = []
        self.finished: list[Run] = []
        self.late: set[int] = set()  # tasks whose outcomes wait for somebody's lock
        self.settled_at = self.ended_at = time.monotonic()
        self.seconds = self.counted = 0.0
        self.asked = self.handing_back = False
        self.lock = threading.RLock()
        self.reporter = reporter(app, role)
        self.execute = app.execute
        self.limits: Heeded
        self.place: Place
        self.note: Callable[[int, float], None]
        self.begin: Callable[[int], None]
        self.limit: Callable[[int, float], None]

    def run(self, wanted: int = 0) -> dict[str, Any]:
        """Run the ticket and return what became of it; `wanted`: how many tasks its message names."""
        ran = 0
        try:
            with watch.place() as self.place:
                self.note, self.limit = noting(self.place.number), limiting(self.place.number)
                self.begin = traces.opened(self.app.database, self.token)
                try:
                    started, expired = self._start()
                except DBAPIError as error:
                    if not is_locked(error):
                        raise
                    self._start_later()
                    return {"ran": 0}
                patience = PATIENCE.set(None)  # a handler's own statements wait as long as it wants
                try:
                    together = self.reporter is not None and self.reporter.together
                    with directly(self.app, self.role.name, together=together) as direct:
                        run = None
                        while (task := self._next(run)) is not None:
                            run = self._run_one(task, direct)
                            ran += 1
                finally:
                    PATIENCE.reset(patience)
                    self.note(0, 0.0)
                self._settle()
        except BaseException as error:
            self._abandon(error)
            raise
        if ran:
            self._note(ran)
        done = {"ran": ran, "expired": expired, "lost": max(0, wanted - started)}
        return {name: n for name, n in done.items() if n or name == "ran"}

    def _note(self, ran: int) -> None:
        """Record how long its tasks took. They are settled, so a failure here loses little."""
        try:
            with patient(START):
                self._observe(ran)
            if not self.role.keeps_successes:
                self.app.tally.write_in_time()
        except DBAPIError as error:
            logger.warning("%s: what a ticket's tasks took was not noted: %s", self.role.name, error)

    def lease_ends_soon(self) -> bool:
        """Return whether most of the lease is over without a renewal: its tasks may soon start elsewhere."""
        return time.monotonic() - max(renewed(), self.started_at) > self.role.stale_after * LEASE_USED

    def _start(self) -> tuple[int, int]:
        """Start the ticket; return how many tasks are this process's, and how many of those have expired."""
        with patient(START):
            own = retry_while_away(self._ask, "start a ticket")
        self.role = self.limits.role
        self.started_at = time.monotonic()
        self.owned = set(map(attrgetter("id"), own))
        for task in own:
            if task.expired:
                self.finished.append(self._expired(task))
            else:
                self.waiting.append(task)
        if self.reporter is not None:
            self.reporter.received(own)
        return len(own), len(self.finished)

    def _start_later(self) -> None:
        """Publish the ticket again later, if it still exists: somebody has locked its row, or one that a pass needs."""

        def send() -> bool:
            with self.app.database.transaction() as connection:
                row = start.ticket(connection, self.token)
                if row is not None and (row.worker_id, row.worker_pid) == (worker_id(), os.getpid()):
                    hand_back(connection, [self.token], started=True)  # an earlier start had no answer
                    row = None
            if row is not None and row.worker_id is None:
                self.app.publisher.publish([Ticket(self.role.lane, self.role.queue, row.ids, self.token)])
            return True

        late.add(Delayed(f"the start of a ticket of {self.role.name}", self.app.database, send, lambda _: None))

    def _ask(self) -> Sequence[Started]:
        """Claim or start the ticket's tasks. The role's limits are read first, because they may forbid that any
        begins.
        """
        self.limits = self.app.limited.heeded(self.role, self.app.settings.time_limit_grace)
        again, self.asked = self.asked, True
        return self.ask(again)

    def _expired(self, task: Started) -> Run:
        run = Run(task, self.role, self.app.database)
        run.expire()
        return run

    def _next(self, ended: Run | None) -> Started | None:
        """Keep the run that has ended, if any, for the next settle, and take the next task."""
        with self.lock:
            if ended is not None:
                self.finished.append(ended)
                if self.ended_at - self.settled_at > SETTLE_EVERY:
                    self._settle()
            while self.waiting and (
                self.handing_back or self.place.stopping or closed() or not (self.limits.let_all() or self._may_begin())
            ):
                self._part_with_waiting()
            return self.waiting.pop(0) if self.waiting else None

    def _may_begin(self) -> bool:
        """Return whether the role's rate, if any, lets a task begin; otherwise the task waits for a pass that has a
        token for it.
        """
        try:
            with patient(OUTCOME):
                lets = retry_while_away(lambda: self.limits.lets(self.waiting), "keep to a role's limits")
        except DBAPIError as error:
            if not is_locked(error):
                raise
            lets = False
        self.role = self.limits.role
        return lets

    def _part_with_waiting(self) -> None:
        """Hand back the waiting tasks. Those that cannot be handed back stay, and none of them begins now."""
        with patient(DEFAULT):
            retry_while_away(self._hand_back_waiting, "hand a ticket back")
        self._settle()
        if self.waiting:
            time.sleep(LOOK_EVERY)

    def _run_one(self, task: Started, direct: Direct | None) -> Run:
        run = Run(task, self.role, self.app.database)
        if (self.limits.allowed is not None or task.timeout is not None) and places.kind is None:
            run.on_limit = self._tell_limit
            self._tell_limit(run)
        self.place.current = (self, run)
        self.note(task.id, run.began)
        self.begin(task.id)
        if self.reporter is not None:
            self.reporter.started(task)
        try:
            self.execute(self.app, run, direct)
        finally:
            self.place.current = None
            if run.on_limit is not None:
                run.on_limit = None
                self.limit(0, 0.0)
        self.ended_at = time.monotonic()
        self.seconds += (seconds := self.ended_at - run.began)
        if seconds > BRIEF:
            self.place.count_descriptors()
        if self.reporter is not None:
            self.reporter.ran(task, seconds)
        return run

    def _tell_limit(self, run: Run) -> None:
        """Show the parent how long the run may last."""
        allowed = self.limits.allowed
        if allowed is None or run.task.timeout is not None or run.task.headers is not None:
            allowed = run.allowed(self.app.settings.time_limit_grace)
        self.limit(run.task.id, run.limited_since + allowed)

    def _settle(self) -> None:
        """Settle the finished tasks. Outcomes that somebody's lock delays are left to another thread."""
        with self.lock:
            self.settled_at = time.monotonic()
            if self.late or any(map(attrgetter("late_session"), self.finished)):
                self._settle_later()
                return
            try:
                with patient(OUTCOME):
                    self.app.settler.settle(self.finished)
            except DBAPIError as error:
                if not is_locked(error):
                    raise
                self._settle_later()
                return
            finally:  # the others are reported even if Postgres refused one
                if self.reporter is not None:
                    self._tell_settled(self.finished)
            self._count(self.finished)
            self.finished = []

    def _count(self, runs: Sequence[Run]) -> None:
        if not self.role.keeps_successes:
            self.app.tally.count(self.role.name, runs, self.seconds - self.counted)
            self.counted = self.seconds
        self._disown(run.task.id for run in runs)

    def _settle_later(self) -> None:
        runs, self.finished = self.finished, []
        for run in runs:
            self.late.add(run.task.id)
            what = f"the outcome of task {run.task.id} of {self.role.name}"
            act, give_up = partial(self._settle_late, run), partial(self._give_up, run)
            late.add(Delayed(what, self.app.database, act, give_up))

    def _settle_late(self, run: Run) -> bool:
        if not self.app.settler.settle_late(run):
            return False
        with self.lock:
            self._tell_settled([run])
            self._count([run])
            self.late.discard(run.task.id)
        return True

    def _give_up(self, run: Run, error: BaseException) -> None:
        """Release this task, so that it runs again: Postgres refuses its outcome."""
        with self.lock, self.app.database.transaction() as connection:
            release.release(
                connection, [self.token], only=[run.task.id], started=True, kind="abandoned", by=worker_id(),
                loss=not is_refused_for_now(error), why=f"its outcome was refused: {in_a_line(error)}"[:500],
            )  # fmt: skip
            self.late.discard(run.task.id)

    def _tell_settled(self, runs: Sequence[Run]) -> None:
        if self.reporter is not None:
            self.reporter.settled(runs)
            self.reporter.flush()

    def give_up_waiting(self) -> None:
        """Hand back the tasks that have not begun and settle the finished ones. The watch calls this repeatedly."""
        with self.lock:
            self._hand_back_waiting()
            try:
                self._settle()
            except (DBAPIError, NotSettled) as error:
                logger.warning("The end of the run settles what its watch could not: %s", error)

    def _hand_back_waiting(self) -> None:
        """Hand back the waiting tasks except locked ones. Until Postgres answers it is unknown whose they are, so none
        may begin.
        """
        if not self.waiting:
            return
        self.handing_back = True
        kept = self._hand_back([task.id for task in self.waiting])
        self.handing_back = False
        gone = [task for task in self.waiting if task.id not in kept]
        self._disown(task.id for task in gone)
        if self.reporter is not None:
            self.reporter.parted(gone)
        self.waiting = [task for task in self.waiting if task.id in kept]

    def _hand_back(self, ids: Sequence[int]) -> set[int]:
        with self.app.database.transaction() as connection:
            if len(hand_back(connection, [self.token], started=True, only=ids)) == len(ids):
                return set()
            return set(ids) if release.still_held(connection, [self.token], ids) else set()

    def _disown(self, ids: Iterable[int]) -> None:
        if self.owned:
            self.owned.difference_update(ids)

    def _abandon(self, error: BaseException) -> None:
        """Release the ticket's tasks after an error of the engine's own.

        If that fails, a forked process exits, and its parent releases them; a process shared with other tickets leaves
        this one to the lifeline.
        """
        logger.error("A ticket of %s broke off: %s", self.role.name, in_a_line(error))
        with self.lock, suppress(Exception):
            self._tell_settled(self.finished)
        if self._released(error):
            return
        if places.kind is None:
            outlets.finish()
            os._exit(1)  # the parent sees a lost child and releases its tasks
        places.orphans.put(self.token)

    def _released(self, error: BaseException) -> bool:
        """Return whether this process has no task any more; False, without another attempt, if Postgres stayed away."""
        if isinstance(error, NotSettled) or is_gone(error):
            return False
        try:
            return any(not self._release(error) for _ in range(LOOKS))
        except BaseException as failure:
            log_error(logger, failure, "The tasks of a ticket of %s could not be released", self.role.name)
            return False

    def _release(self, error: BaseException) -> bool:
        """Release the tasks; return whether somebody has locked some of them. A loss is counted for a task that had
        begun, unless Postgres refused an outcome only for now.
        """
        why, loss = f"its process broke off: {in_a_line(error)}"[:500], not is_refused_for_now(error)
        with self.lock, self.app.database.transaction() as connection:
            mine = None if self.owned is None else list(self.owned - self.late)
            hand_back(connection, [self.token], started=True, only=[task.id for task in self.waiting])
            release.release(
                connection, [self.token], only=mine, started=True, kind="abandoned", by=worker_id(), loss=loss, why=why
            )
            kept = bool(release.still_held(connection, [self.token], mine))
        if kept:
            time.sleep(LOOK_EVERY)
        return kept

    def _observe(self, ran: int) -> None:
        now, key = time.monotonic(), (self.app.database.url, self.role.lane)
        if not self.role.is_measured or now - _observed.get(key, -1e9) < OBSERVE_EVERY:
            return
        _observed[key] = now
        with self.app.database.statement() as connection:
            registry.observe(connection, self.role.lane, self.seconds / ran)


#: The longest time (seconds) between two attempts. They become rarer, because a ticket usually appears at once or
#: never.
SELDOM = 10.0


def look_after_stray(database: Database, token: str, seconds: float) -> None:
    """Hand back, in a thread, a ticket that appears under this token within so many seconds."""
    until = time.monotonic() + seconds
    threading.Thread(target=_look_after, args=(database, token, until), name="celeriac-stray", daemon=True).start()


def _look_after(database: Database, token: str, until: float) -> None:
    rest = LOOK_EVERY
    while time.monotonic() < until:
        time.sleep(rest)
        rest = min(2 * rest, SELDOM)
        try:
            with database.transaction() as connection:
                freed = hand_back(connection, [token], started=True)
        except DBAPIError as error:
            logger.debug("A stray ticket is looked for again in %g s: %s", rest, error)
            continue
        if freed:
            logger.warning("A ticket came after its answer was lost: %d tasks wait again", len(freed))
            return
