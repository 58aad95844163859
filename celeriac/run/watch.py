"""The watch: a thread in each child that supervises the one task running there, or all of a pool of threads.

It enforces the time limit by itself, notices cancellation and a lost lease, stops runs whose lease nobody renews, and
hands a ticket's other tasks back while one takes long. Short tasks never notice it: it checks a few times a second.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from billiard.process import current_process
from celery.exceptions import SoftTimeLimitExceeded

from celeriac.errors import LeaseLost, TaskCancelled
from celeriac.run import children, lease, shared
from celeriac.run.places import Place, places
from celeriac.run.run import Run
from celeriac.store.failures import log_error

logger = logging.getLogger(__name__)

#: Seconds between two checks, and how long a task may run before its ticket's other rows are handed back.
LOOK_EVERY = 0.25


class RunWatch:
    """The watch of one process."""

    def __init__(self) -> None:
        self.pid = 0

    def start(self) -> None:
        """Start the threads, again after a fork, which no thread survives."""
        if self.pid == os.getpid():
            return
        self.pid = os.getpid()
        places.forget()
        children.hear_signals_as_programs(in_pool=bool(current_process().daemon))
        for look in (self._look_at, self._limit):
            threading.Thread(target=self._for_ever, args=(look,), name=f"celeriac{look.__name__}", daemon=True).start()

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Take a place where this thread runs the tasks of a ticket."""
        if self.pid != os.getpid():
            self.start()
        place = places.take()
        try:
            yield place
        finally:
            places.give_back(place)

    def _for_ever(self, look: Callable[[Place], None]) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            for place in places.taken():
                try:
                    look(place)
                except Exception as error:
                    log_error(logger, error, "The watch could not check; it checks again in %g s", LOOK_EVERY)

    def _look_at(self, place: Place) -> None:
        self._look(place)
        self.make_room()

    def _look(self, place: Place) -> None:
        current = place.current
        if current is None or time.monotonic() - current[1].began < LOOK_EVERY:
            return
        held, run = current
        if run.outcome is None and held.lease_ends_soon():
            return  # `_limit` stops it
        held.give_up_waiting()
        if run.outcome is None and (error := _reason_to_stop(run)) is not None:
            place.stop(run, error)

    def _limit(self, place: Place) -> None:
        """Stop what has no lease, and interrupt the handler at the soft limit: once, but a coroutine until it ends. At
        the hard limit the parent stops this process. Nothing here waits for Postgres.
        """
        if (current := place.current) is None:
            return
        held, run = current
        if run.outcome is None and time.monotonic() - run.began > LOOK_EVERY and held.lease_ends_soon():
            place.stop(run, LeaseLost(f"nobody renewed the lease of task {run.task.id}"))
        elif _limit_reached(run):
            run.stopped = place.stop(run, SoftTimeLimitExceeded(run.timeout)) and run.awaited is None

    def make_room(self) -> None:
        """End a pool's idle process that ran tasks before, if such are to be replaced or this one was asked to end. It
        waits until the pool must know that the process's last ticket is over.
        """
        since, process = places.idle_since, places.only
        if process is None or process.leaving or since is None:
            return
        if not ((shared.replacing_idle() or process.stopping) and process.hears and current_process().daemon):
            return
        if time.monotonic() - since > LOOK_EVERY:
            if not process.stopping:
                logger.warning("Memory stays short: this process ran tasks before, and makes room for another")
            process.leave()


def _reason_to_stop(run: Run) -> BaseException | None:
    with run.database.statement() as connection:
        cancelled = lease.is_cancelled(connection, run.task.id, run.task.token)
    if cancelled is None:
        return LeaseLost(f"task {run.task.id} is no longer this worker's")
    return TaskCancelled(f"task {run.task.id} was cancelled") if cancelled else None


def _limit_reached(run: Run) -> bool:
    """Return whether to interrupt the handler for its time limit. Nothing can stop a thread, so there a hard limit that
    an operator has set later counts as a soft one.
    """
    left = run.left
    if run.outcome is not None or left is None or left > 0 or run.stopped:
        return False
    return places.kind is not None or run.grace(math.inf) > 0


#: The watch of this process.
watch = RunWatch()


@contextmanager
def at_work() -> Iterator[None]:
    """Mark the process as busy for the whole of a ticket. A process that makes way hands back what comes, which does
    not delay its end.
    """
    makes_way = places.only is not None and places.only.stopping and places.idle_since is not None
    places.is_busy, places.idle_since = True, places.idle_since if makes_way else None
    try:
        yield
    finally:
        places.is_busy = False
        if not makes_way:
            places.idle_since = time.monotonic()
