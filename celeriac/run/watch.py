"""The watch: a thread in each child that looks after the one task running there.

It enforces the time limit without asking anybody, hears of cancellation and of a lost lease, stops what nobody renews
the lease of, and hands a ticket's other tasks back while one takes long. Short tasks never notice it: it looks a few
times a second.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from billiard.pool import EX_RECYCLE
from billiard.process import current_process
from celery.exceptions import SoftTimeLimitExceeded

from celeriac.errors import LeaseLost, TaskCancelled
from celeriac.run import lease, shared
from celeriac.run.run import Run

if TYPE_CHECKING:
    from celeriac.run.ticket import TicketRun

logger = logging.getLogger(__name__)

#: Seconds between two looks; also how long a task may run before its ticket's other rows go elsewhere.
LOOK_EVERY = 0.25


class Watch:
    """One a process. `current` is what runs now, `idle_since` when the last ticket was over, if there is none.

    Only the thread that runs tasks sets them.
    """

    def __init__(self) -> None:
        self.current: tuple[TicketRun, Run] | None = None
        self.idle_since: float | None = None
        self.interrupting: tuple[Run, BaseException] | None = None
        self.leaving = False
        self.pid = 0
        self.hears = False

    def start(self) -> None:
        """Anew after a fork: threads do not survive it, nor does a handler Celery reset.

        In tests the main thread and an embedded worker's may take turns.
        """
        hears = threading.current_thread() is threading.main_thread()
        if self.pid == os.getpid() and self.hears == hears:
            return
        self.hears = hears
        if hears:
            signal.signal(signal.SIGUSR2, self._interrupted)
        if self.pid == os.getpid():
            return
        self.pid = os.getpid()
        for watching in (self._look_for_ever, self._limit_for_ever):
            threading.Thread(target=watching, name=f"celeriac{watching.__name__}", daemon=True).start()

    def _interrupted(self, *_: Any) -> None:
        """In the main thread: raises in the handler, if it is still the one meant and has not ended."""
        if self.leaving and self.idle_since is not None:
            sys.exit(EX_RECYCLE)
        self.leaving = False
        wanted, current = self.interrupting, self.current
        self.interrupting = None
        if wanted and current and current[1] is wanted[0] and wanted[0].outcome is None:
            raise wanted[1]

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            try:
                self.look()
                self.make_room()
            except Exception:
                logger.exception("The watch could not look; it looks again in %g s", LOOK_EVERY)

    def look(self) -> None:
        current = self.current
        if current is None or time.monotonic() - current[1].began < LOOK_EVERY:
            return
        held, run = current
        if run.outcome is None and held.lease_ends_soon():
            self.interrupt(run, LeaseLost(f"nobody renewed the lease of task {run.task.id}"))
            return
        held.give_up_waiting()
        if run.outcome is None and (error := self._reason_to_stop(held, run)) is not None:
            self.interrupt(run, error)

    def _reason_to_stop(self, held: TicketRun, run: Run) -> BaseException | None:
        with held.app.database.statement() as connection:
            cancelled = lease.is_cancelled(connection, run.task.id, run.task.token)
        if cancelled is None:
            return LeaseLost(f"task {run.task.id} is no longer this worker's")
        return TaskCancelled(f"task {run.task.id} was cancelled") if cancelled else None

    def _limit_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            current = self.current
            if current is not None and (error := self._limit_reached(current[1])) is not None:
                self.interrupt(current[1], error)

    def _limit_reached(self, run: Run) -> BaseException | None:
        """At the soft limit the handler is told, once; at the hard one the parent stops this process."""
        left = run.left
        if run.outcome is not None or left is None or left > 0 or run.stopped or run.grace(math.inf) == 0:
            return None
        run.stopped = True
        return SoftTimeLimitExceeded(run.timeout)

    def make_room(self) -> None:
        """Ends a pool's process that ran tasks and runs none, if those are to be replaced: the pool starts another.

        Its last ticket is over for so long that the pool knows.
        """
        since = self.idle_since
        if self.leaving or since is None or not (shared.replacing_idle() and self.hears and current_process().daemon):
            return
        if time.monotonic() - since > LOOK_EVERY:
            logger.warning("Memory stays short: this process ran tasks before, and makes room for another")
            self.leaving = True
            os.kill(os.getpid(), signal.SIGUSR2)

    def interrupt(self, run: Run, error: BaseException) -> None:
        """Nothing where tasks run in another thread (an embedded worker's): there the signal would end the process."""
        if self.hears:
            self.interrupting = (run, error)
            os.kill(os.getpid(), signal.SIGUSR2)


#: This process's.
watch = Watch()


@contextmanager
def at_work() -> Iterator[None]:
    """Around all of a ticket: its process is not idle."""
    watch.idle_since = None
    try:
        yield
    finally:
        watch.idle_since = time.monotonic()
