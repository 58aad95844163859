"""Flights: the tasks of a process with many slots, in threads, in greenlets or on one event loop.

No slot has a connection of its own. One thread fills free slots, by passes whose whole ticket begins here and by
tickets from Redis; another settles what has landed, many tasks in a statement. In an asyncio pool the loop has its own
thread, and others watch the coroutines.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from celery._state import _task_stack
from sqlalchemy.exc import DBAPIError

from celeriac.roles import registry
from celeriac.roles.role import Role
from celeriac.run import coroutines, shared, stacks
from celeriac.run.app import RunApp
from celeriac.run.execute import Direct
from celeriac.run.filler import PIECE, Filler
from celeriac.run.flight import Flight, FlightWatch, SharedTicket
from celeriac.run.late import Delayed, HeldUp, late
from celeriac.run.places import places
from celeriac.run.requests import DirectRequest
from celeriac.run.run import Run
from celeriac.run.ticket import OBSERVE_EVERY, hand_back
from celeriac.settle import release
from celeriac.store.awaited import holder
from celeriac.store.failures import RETRY_EVERY, Away, in_a_line, is_gone, is_locked, is_refused_for_now, log_error
from celeriac.store.patience import patient

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds for which outcomes are collected before they are written.
SETTLE_EVERY = 0.01

#: Seconds that an outcome waits for another transaction's lock before the others get their turn.
LOCKED = 0.1

#: Seconds that a task claimed ahead waits for a slot before it is handed back.
PATIENCE = 1.0

#: Threads for handlers that are not `async def`.
THREADS = 32


class Flights:
    """The flights of one process, of which at most `limit` run at once; others wait for a slot or to be settled.
    `served()`: the roles it takes; `ran(role, n)` is called with counts of tasks that have run.

    `on_loop`: coroutines share an event loop, and other handlers a few threads;
    otherwise each slot has a thread, or a greenlet under gevent. `down`: how many are to be settled or handed back;
    `in_air`: how many are on the loop; `is_short`: something is short here, and nothing begins.
    """

    def __init__(
        self,
        app: RunApp,
        limit: int,
        served: Callable[[], Sequence[Role]],
        ran: Callable[[str, int], None],
        *,
        on_loop: bool,
    ) -> None:
        self.app = app
        self.on_loop = on_loop
        self.served = served
        self.ran = ran
        self.lock = threading.Lock()
        self.flights: dict[int, Flight] = {}
        self.landed: list[Flight] = []
        self.waiting: deque[Flight] = deque()
        self.down = self.in_air = 0
        self.is_short = False
        self.landing, self.over = threading.Event(), threading.Event()
        self.executor = ThreadPoolExecutor(1, "celeriac-handler")
        self.resize(limit)
        self.filler = Filler(self)
        self.observed: dict[str, float] = {}
        self.threads = [
            threading.Thread(target=self.filler.run, name="celeriac-filler", daemon=True),
            threading.Thread(target=self._settle_for_ever, name="celeriac-settler", daemon=True),
        ]
        if on_loop:
            self.loop = asyncio.new_event_loop()
            self.greenlets = coroutines.GreenletPool()
            self.loop_thread = threading.Thread(target=self._run_loop, name="celeriac-loop", daemon=True)
            self.watch = FlightWatch(self)
            self.threads += [
                self.loop_thread,
                *(
                    threading.Thread(target=self.watch.for_ever, args=(look,), name="celeriac-flights", daemon=True)
                    for look in (self.watch.limit, self.watch.heed)
                ),
                threading.Thread(target=self.watch.watch_loop, name="celeriac-loop-watch", daemon=True),
            ]

    def resize(self, limit: int) -> None:
        """Set how many tasks run at once. The executor makes threads as it needs them, and keeps those it has."""
        self.limit = limit
        self.places = min(THREADS, limit) if self.on_loop else limit
        self.executor._max_workers = self.places
        self.look_at_waiting()

    def start(self) -> None:
        if self.on_loop:
            for task in self.app.tasks.values():
                stacks.tell_apart(task.request_stack)
            stacks.tell_apart(_task_stack)
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Stop once every task has landed and is settled."""
        while self.flights or self.filler.brought or self.filler.doubts:
            time.sleep(SETTLE_EVERY)
        self.over.set()
        self.filler.woken.set()
        self.landing.set()
        if self.on_loop:
            self.loop.call_soon_threadsafe(self.loop.stop)
        for thread in self.threads:
            thread.join(1.0)
        self.executor.shutdown(wait=False)

    def current(self) -> dict[int, shared.Current]:
        """Return what runs now, by task id."""
        now, clock = time.monotonic(), time.time()
        with self.lock:
            flights = list(self.flights.items())
        return {i: shared.Current(os.getpid(), i, clock - (now - f.began)) for i, f in flights if f.began}

    def room_for(self, role: Role) -> int:
        """Return how many more tasks of the role fit; a task that does not share the loop needs a thread."""
        room = self.filler.room()
        if not self.on_loop or self.shares_loop(role.name):
            return room
        with self.lock:
            threaded = sum(not f.run.on_loop for f in self.flights.values())
        return min(room, self.places - threaded)

    def shares_loop(self, role: str) -> bool:
        return self.on_loop and coroutines.is_coroutine(self.app.tasks[role])

    # -- the loop --------------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        """Run the loop, again if it ends: an asyncio task made by a handler may raise what ends a loop."""
        asyncio.set_event_loop(self.loop)
        while not self.over.is_set():
            try:
                self.loop.run_forever()
            except BaseException as error:
                logger.error("A handler's own asyncio task ended the loop, which goes on: %r", error)
        self.loop.close()

    def launch(self, flights: Sequence[Flight]) -> None:
        """Launch these tasks, all of one ticket and so of one role."""
        if flights[0].run.on_loop:
            self.loop.call_soon_threadsafe(self._launch, flights)
        else:
            self._launch_in_threads(flights)

    def _launch_in_threads(self, flights: Sequence[Flight]) -> None:
        """Launch tasks in threads. If no thread can be started, they wait for an existing one; without any, they are
        handed back.
        """
        errors: list[RuntimeError] = []
        for flight in flights:
            try:
                flight.in_line = self.executor.submit(self._fly_in_thread, flight)
            except RuntimeError as error:
                errors.append(error)
        if not errors:
            return
        logger.warning("No thread can be begun (%s): fewer tasks run at once than this worker has slots", errors[0])
        if not self.executor._threads:
            self.executor = ThreadPoolExecutor(self.places, "celeriac-handler")
            self._turn_back(flights)
            time.sleep(RETRY_EVERY)

    def _launch(self, flights: Sequence[Flight]) -> None:
        self.waiting.extend(flights)
        self.take_off()

    def take_off(self) -> None:
        """Begin waiting tasks in the free slots of the loop, and hand back those that must not begin here."""
        while self.waiting and self.in_air < self.limit and not self._is_shut():
            flight = self.waiting.popleft()
            if flight.ticket.lease_ends_soon():
                self._turn_back([flight])
                continue
            self.in_air += 1
            # A context of its own, so that the next handler in this slot does not see what this one sets.
            flight.task = self.loop.create_task(self._fly_on_loop(flight), context=contextvars.Context())
        while self.waiting and self._waits_in_vain(self.waiting[0]):
            self._turn_back([self.waiting.popleft()])

    def look_at_waiting(self) -> None:
        """Begin tasks that wait for a slot, as there may be more slots by now; hand back those that wait in vain."""
        if self.waiting:
            self.loop.call_soon_threadsafe(self.take_off)
        with self.lock:
            in_line = [f for f in self.flights.values() if f.in_line is not None and self._waits_in_vain(f)]
        self._turn_back([f for f in in_line if f.in_line.cancel()])  # type: ignore[union-attr]

    def _is_shut(self) -> bool:
        """Return whether nothing may begin here now."""
        return self.is_short or shared.closed()

    def _waits_in_vain(self, flight: Flight) -> bool:
        """Return whether the expected slot has not become free, or nothing begins here any more."""
        return self._is_shut() or time.monotonic() - flight.ticket.started_at > PATIENCE

    def _turn_back(self, flights: Collection[Flight]) -> None:
        for flight in flights:
            flight.why_back = True
        self.land(flights)

    async def _fly_on_loop(self, flight: Flight) -> None:
        run = flight.run
        try:
            self._begin(flight)
            run.awaited = coroutines.Awaited(self.loop, flight.task)  # type: ignore[arg-type]
            stacks.begin_apart(run)
            holder.set(run)
            await self.greenlets.spawn(partial(self._execute, flight, run))
        except BaseException as error:
            flight.broke = _breakage(error)
        finally:
            run.awaited = None
            self._end_flight(flight)
            self.in_air -= 1
            if self.waiting:
                self.take_off()

    def pick_up(self, flight: Flight) -> None:
        """Hand back a task whose asyncio task was cancelled before its first step: its handler never runs."""
        if not flight.is_down:
            self.in_air -= 1
            self._turn_back([flight])
            self.take_off()

    def _fly_in_thread(self, flight: Flight) -> None:
        """Run the task in this thread, unless the process has stopped beginning tasks since it was launched."""
        flight.in_line = None
        if self._is_shut() or flight.ticket.lease_ends_soon():
            self._turn_back([flight])
            return
        try:
            self._begin(flight)
            place = places.take()
            place.current = (flight.ticket, flight.run)
            try:
                self._execute(flight, stacks.owner_here())
            finally:
                places.give_back(place)
        except BaseException as error:
            flight.broke = _breakage(error)
        finally:
            self._end_flight(flight)

    def _begin(self, flight: Flight) -> None:
        run, ticket = flight.run, flight.ticket
        flight.began = run.began = run.limited_since = time.monotonic()
        ticket.ask.begin(run.task.id)
        if ticket.reporter is not None:
            ticket.reporter.started(run.task)

    def _end_flight(self, flight: Flight) -> None:
        """End the flight, whatever its handler did, and leave it to be settled or released."""
        flight.seconds = time.monotonic() - flight.began
        self.land((flight,))

    def _execute(self, flight: Flight, owner: object) -> None:
        """Run the handler; `owner`: the owner of its entries on Celery's stacks."""
        ticket, run = flight.ticket, flight.run
        if not ticket.direct:
            ticket.execute(self.app, run, None)
            return
        task, context = ticket.task, DirectRequest.__new__(DirectRequest)  # the request brings what `__init__` sets
        stacks.begin_stack(_task_stack, owner, task)
        stacks.begin_stack(task.request_stack, owner, context)
        try:
            together = ticket.reporter is not None and ticket.reporter.together
            direct = Direct(task, context, self.app.backend, ticket.requests, ticket.keeps, ticket.logs, together)
            ticket.execute(self.app, run, direct)
        finally:
            stacks.end_stack(task.request_stack, owner)
            stacks.end_stack(_task_stack, owner)

    def land(self, flights: Iterable[Flight]) -> None:
        with self.lock:
            for flight in flights:
                self.landed.append(flight)
                if not flight.is_down:
                    flight.is_down = True
                    self.down += 1
        if not self.landing.is_set():  # setting it takes its lock
            self.landing.set()

    # -- settle ----------------------------------------------------------------------------------------------------

    def _settle_for_ever(self) -> None:
        away, held_up = Away(), HeldUp(self.app.database)
        while not self.over.is_set():
            self.landing.wait()
            time.sleep(SETTLE_EVERY)
            self.landing.clear()
            try:
                with patient(LOCKED):
                    self.settle()
            except Exception as error:
                if is_locked(error):
                    held_up.say(in_a_line(error))
                elif is_gone(error.__cause__ or error):
                    away.say(error.__cause__ or error)
                else:
                    log_error(logger, error, "Outcomes could not be written; it is tried again")
                time.sleep(RETRY_EVERY)
                self.landing.set()

    def settle(self) -> None:
        """Settle or release flights that have ended. INVARIANT: what Postgres did not acknowledge is still in
        `landed`.
        """
        with self.lock:
            flights, self.landed = self.landed, []
        try:
            self._settle_later(f for f in flights if f.run.late_session is not None)
            flights = [f for f in flights if not f.is_late]
            done = [f for f in flights if f.run.outcome is not None]
            self._each(self._settle, [done[i : i + PIECE] for i in range(0, len(done), PIECE)])
            self._each(self._release, [f for f in flights if f.run.outcome is None])
        finally:
            if rest := [f for f in flights if f.run.task.id in self.flights]:
                self.land(rest)

    def _each(self, act: Callable[[T], None], parts: Iterable[T]) -> None:
        """Call `act` for each part. A part that meets somebody's lock does not delay the others; its error is raised at
        the end.
        """
        locked: DBAPIError | None = None
        for part in parts:
            try:
                act(part)
            except DBAPIError as error:
                if not is_locked(error):
                    raise
                locked = error
        if locked is not None:
            raise locked

    def _settle(self, flights: Sequence[Flight]) -> None:
        """Settle these. Outcomes that Postgres refuses for good are released as broken off; locked ones are tried one
        by one.
        """
        try:
            self.app.settler.settle([f.run for f in flights])
        except DBAPIError as error:
            if is_locked(error) and len(flights) > 1:
                half = len(flights) // 2
                self._each(self._settle, (flights[:half], flights[half:]))
                return
            if is_gone(error) or is_refused_for_now(error):
                raise
            for flight in flights:
                if not flight.run.settled:
                    flight.broke, flight.run.outcome = error, None
        finally:
            self._end([f for f in flights if f.run.settled])

    def _settle_later(self, flights: Iterable[Flight]) -> None:
        """Leave these outcomes, and their handlers' writes, to a thread that waits for somebody's lock."""
        for flight in flights:
            flight.is_late = True
            what = f"the outcome of task {flight.run.task.id} of {flight.ticket.role.name}"
            act, give_up = partial(self._settle_late, flight), partial(self._give_up, flight)
            late.add(Delayed(what, self.app.database, act, give_up))

    def _settle_late(self, flight: Flight) -> bool:
        if not self.app.settler.settle_late(flight.run):
            return False
        self._end([flight])
        return True

    def _give_up(self, flight: Flight, error: BaseException) -> None:
        """Release this task as broken off: Postgres refuses its outcome."""
        flight.broke, flight.run.outcome, flight.is_late = error, None, False
        self.land([flight])

    def _release(self, flight: Flight) -> None:
        """Release this task; one that somebody has locked is tried another time."""
        token, only = flight.run.task.token, [flight.run.task.id]
        with self.app.database.transaction() as connection:
            if flight.why_back:
                hand_back(connection, [token], started=True, only=only)
            else:
                error = flight.broke or RuntimeError("ended without an outcome")
                why = f"its slot broke off: {in_a_line(error)}"[:500]
                logger.error("Task %s of %s broke off: %s", *only, flight.ticket.role.name, in_a_line(error))
                release.release(
                    connection, [token], only=only, started=True, kind="abandoned", why=why, by=shared.worker_id(),
                    loss=not is_refused_for_now(error),
                )  # fmt: skip
            kept = release.still_held(connection, [token], only)
        if not kept:
            self._end([flight])

    def _end(self, flights: Sequence[Flight]) -> None:
        """Remove these flights, as far as they are still listed: their tasks are no longer this process's."""
        with self.lock:
            flights = [f for f in flights if self.flights.get(f.run.task.id) is f]
            for flight in flights:
                del self.flights[flight.run.task.id]
                flight.ticket.left -= 1
            self.down -= len(flights)
        if not flights:
            return
        for flight in flights:
            flight.run.seal()
        for ticket in {f.ticket for f in flights}:
            self._tell(ticket, [f for f in flights if f.ticket is ticket])
        self.filler.throughput.add(sum(f.began > 0 for f in flights), time.monotonic())
        if self.filler.is_worth_it():
            self.filler.woken.set()

    def _tell(self, ticket: SharedTicket, flights: Sequence[Flight]) -> None:
        runs = [f.run for f in flights if f.run.settled]
        for flight in flights if ticket.reporter is not None else ():
            if flight.began:
                ticket.reporter.ran(flight.run.task, flight.seconds)  # type: ignore[union-attr]
        if ticket.reporter is not None:
            ticket.reporter.settled(runs)
            ticket.reporter.parted([f.run.task for f in flights if f.why_back])
            ticket.reporter.flush()
        ran = [f for f in flights if f.began]
        ticket.ran += len(ran)
        self._note(ticket.role, runs, sum(f.seconds for f in ran), len(ran))
        if not ticket.ask.ended:
            self.ran(ticket.role.name, len(ran))
        if not ticket.left and ticket.ask.ended:
            ticket.ask.ended({"ran": ticket.ran, "expired": ticket.expired})

    def _note(self, role: Role, runs: Sequence[Run], seconds: float, ran: int) -> None:
        """Note counts and durations. The tasks are settled, so failing here loses little."""
        now = time.monotonic()
        if not role.keeps_successes:
            self.app.tally.count(role.name, runs, seconds)
            self.app.tally.write_in_time()
        if not (ran and role.is_measured) or now - self.observed.get(role.lane, 0.0) < OBSERVE_EVERY:
            return
        self.observed[role.lane] = now
        try:
            with self.app.database.statement() as connection:
                registry.observe(connection, role.lane, seconds / ran)
        except DBAPIError as error:
            logger.warning("%s: what its tasks took was not noted: %s", role.name, in_a_line(error))


def _breakage(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"the handler ended its thread: {error!r}")
