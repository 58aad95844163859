"""A flight: one task in a pool whose slots share a process, from its start to its settle,
and the ticket it came with.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from celery.exceptions import SoftTimeLimitExceeded

from celeriac.errors import LeaseLost, TaskCancelled
from celeriac.roles.role import Role
from celeriac.run import coroutines, lease, shared
from celeriac.run.app import Execute, RunApp
from celeriac.run.reporting import Reporter
from celeriac.run.requests import Requests
from celeriac.run.run import Run
from celeriac.run.ticket import LEASE_USED
from celeriac.run.watch import LOOK_EVERY
from celeriac.store.failures import log_error


def _nothing(_: int) -> None:
    """Do nothing: the default where no trace of a ticket's tasks is kept."""


@dataclass(eq=False, slots=True)
class Ask:
    """A request for a ticket: from its first statement to the first answer it is in doubt whether this process has the
    ticket. `ended` is called with what became of a ticket from Redis. `begin` notes each of its tasks as it begins.
    """

    role: Role
    token: str
    ids: Sequence[int] = ()
    ended: Callable[[dict[str, Any]], None] | None = None
    asked: bool = False
    begin: Callable[[int], None] = _nothing


@dataclass(eq=False, slots=True)
class SharedTicket:
    """A ticket whose tasks are in flight here."""

    role: Role
    ask: Ask
    reporter: Reporter | None
    direct: bool
    requests: Requests
    task: Any
    execute: Execute
    keeps: bool
    logs: bool
    started_at: float = field(default_factory=time.monotonic)
    left: int = 0
    ran: int = 0
    expired: int = 0

    def lease_ends_soon(self) -> bool:
        return time.monotonic() - max(shared.renewed(), self.started_at) > self.role.stale_after * LEASE_USED

    def give_up_waiting(self) -> None:
        """Do nothing: its tasks run side by side, and `look_at_waiting` hands back those that wait for a slot too
        long.
        """


@dataclass(eq=False, slots=True)
class Flight:
    """One task in flight.

    `broke`: an error of the engine's own, or one that ends a process. `why_back`: it never began and is handed back.
    `is_down`: it has ended or is handed back, and needs no slot. `in_line`: its place in the queue for a thread.
    `is_late`: a thread writes its outcome, and its handler's writes, once somebody's lock is gone.
    """

    run: Run
    ticket: SharedTicket
    began: float = 0.0
    seconds: float = 0.0
    broke: BaseException | None = None
    why_back: bool = False
    is_late: bool = False
    is_down: bool = False
    in_line: Future[None] | None = None
    task: asyncio.Task[None] | None = None


class InFlight(Protocol):
    """All flights of a process, as its filler and its watch see them."""

    app: RunApp
    limit: int
    served: Callable[[], Sequence[Role]]
    lock: threading.Lock
    flights: dict[int, Flight]
    down: int
    is_short: bool
    over: threading.Event
    loop: asyncio.AbstractEventLoop
    loop_thread: threading.Thread

    def look_at_waiting(self) -> None: ...
    def pick_up(self, flight: Flight) -> None: ...
    def room_for(self, role: Role) -> int: ...
    def shares_loop(self, role: str) -> bool: ...
    def launch(self, flights: Sequence[Flight]) -> None: ...
    def land(self, flights: Iterable[Flight]) -> None: ...


def by_role(flights: Iterable[Flight]) -> dict[str, int]:
    """Return how many flights each role has."""
    return dict(Counter(f.ticket.role.name for f in flights))


logger = logging.getLogger(__name__)

#: Seconds without an answer after which the loop counts as blocked, and seconds between two tests of that.
BLOCKED, ASK_EVERY = 0.2, 0.05


class FlightWatch:
    """Watches the coroutines under way, and their loop. `limit` does not wait for Postgres, so that time limits and
    leases are kept while it does not answer.
    """

    def __init__(self, flights: InFlight) -> None:
        self.flights = flights
        self.lag = 0.0

    def for_ever(self, look: Callable[[], None]) -> None:
        while not self.flights.over.wait(LOOK_EVERY):
            try:
                look()
            except Exception as error:
                log_error(logger, error, "The watch could not look; it looks again in %g s", LOOK_EVERY)

    def limit(self) -> None:
        """Stop coroutines at their time limit or without a lease, again and again if they go on."""
        for flight in self._flights():
            run = flight.run
            if flight.task is not None and flight.task.done() and not flight.is_down:
                self.flights.loop.call_soon_threadsafe(self.flights.pick_up, flight)
            elif run.awaited is None:
                continue
            elif flight.ticket.lease_ends_soon():
                self._stop(flight, LeaseLost(f"nobody renewed the lease of task {run.task.id}"))
            elif (left := run.left) is not None and left <= 0:
                self._stop(flight, SoftTimeLimitExceeded(run.timeout))

    def _flights(self) -> list[Flight]:
        with self.flights.lock:
            return list(self.flights.flights.values())

    def heed(self) -> None:
        """Stop coroutines whose tasks were cancelled, or are another worker's, as Postgres has it."""
        now = time.monotonic()
        flights = [f for f in self._flights() if f.run.awaited is not None and now - f.began > LOOK_EVERY]
        if not flights:
            return
        with self.flights.app.database.statement() as connection:
            held = lease.standing(connection, {f.run.task.token for f in flights})
        for flight in flights:
            task = flight.run.task
            if (cancelled := held.get(task.id)) is None:
                self._stop(flight, LeaseLost(f"task {task.id} is no longer this worker's"))
            elif cancelled:
                self._stop(flight, TaskCancelled(f"task {task.id} was cancelled"))

    def _stop(self, flight: Flight, error: BaseException) -> None:
        awaited = flight.run.awaited
        if awaited is not None and flight.run.outcome is None:
            awaited.stop(flight.run, error)

    # -- a loop that is blocked ------------------------------------------------------------------------------------

    def watch_loop(self) -> None:
        while not self.flights.over.wait(ASK_EVERY):
            answered, asked = threading.Event(), time.monotonic()
            try:
                self.flights.loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the pool has stopped meanwhile, and its loop is closed
                return
            patience = BLOCKED
            while not answered.wait(patience) and not self.flights.over.is_set():
                self.lag = time.monotonic() - asked
                logger.warning("The event loop is blocked for %.1f s: %s", self.lag, self._where())
                patience = coroutines.AGAIN
            self.lag = time.monotonic() - asked

    def _where(self) -> str:
        """Return which task runs on the loop now, and at which line of code."""
        current = asyncio.current_task(self.flights.loop)
        with self.flights.lock:
            flights = [f for f in self.flights.flights.values() if f.task is not None and f.task is current]
        whose = f"task {flights[0].run.task.id} of {flights[0].ticket.role.name}" if flights else "a handler's own task"
        return f"{whose}, {coroutines.line_of(self.flights.loop_thread.ident)}"
