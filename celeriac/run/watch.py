"""The watch: a thread in each child that looks after the one task running there.

It enforces the time limit, hears of cancellation and of a lost lease, and hands a ticket's other rows back while one
takes long. Short tasks never notice it: it looks a few times a second.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery.exceptions import SoftTimeLimitExceeded

from celeriac.errors import LeaseLost, TaskCancelled
from celeriac.run import lease
from celeriac.run.run import Run
from celeriac.worker import shared

if TYPE_CHECKING:
    from celeriac.run.ticket import Batch

logger = logging.getLogger(__name__)

#: Seconds between two looks; also how long a task may run before its ticket's other rows go elsewhere.
LOOK_EVERY = 0.25


class Watch:
    """One a process. `current` is what runs now; only the thread that runs it sets it."""

    def __init__(self) -> None:
        self.current: tuple[Batch, Run] | None = None
        self.interrupting: tuple[Run, BaseException] | None = None
        self.pid = 0
        self.hears = False

    def start(self) -> None:
        """Anew after a fork: threads do not survive it, nor does a handler Celery reset."""
        if self.pid == os.getpid():
            return
        self.pid = os.getpid()
        self.hears = threading.current_thread() is threading.main_thread()
        if self.hears:
            signal.signal(signal.SIGUSR2, self._interrupted)
        threading.Thread(target=self._look_for_ever, name="celeriac-watch", daemon=True).start()

    def _interrupted(self, *_: Any) -> None:
        """In the main thread: raises in the handler, if it is still the one meant and has not ended."""
        wanted, current = self.interrupting, self.current
        self.interrupting = None
        if wanted and current and current[1] is wanted[0] and wanted[0].outcome is None:
            raise wanted[1]

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            try:
                self.look()
            except Exception:
                logger.exception("The watch could not look; it looks again in %g s", LOOK_EVERY)

    def look(self) -> None:
        current = self.current
        if current is None or time.monotonic() - current[1].began < LOOK_EVERY:
            return
        batch, run = current
        batch.give_up_waiting()
        if run.outcome is None and (error := self._reason_to_stop(batch, run)) is not None:
            self.interrupt(run, error)

    def _reason_to_stop(self, batch: Batch, run: Run) -> BaseException | None:
        with batch.app.database.statement() as connection:
            standing = lease.standing(connection, run.task.id, run.task.token)
        if standing is None:
            return LeaseLost(f"task {run.task.id} is no longer this worker's")
        if standing.cancelled:
            return TaskCancelled(f"task {run.task.id} was cancelled")
        return self._limit_reached(run, standing.left, batch.app.settings.time_limit_grace)

    def _limit_reached(self, run: Run, left: float | None, otherwise: float) -> BaseException | None:
        """At the soft limit the handler is told, once; at the hard one the parent is, which stops this process."""
        if left is None or left > 0:
            return None
        grace = run.grace(otherwise)
        if left + grace <= 0:
            shared.say_overdue()
        if run.stopped or run.grace(math.inf) == 0:
            return None
        run.stopped = True
        return SoftTimeLimitExceeded(run.timeout)

    def interrupt(self, run: Run, error: BaseException) -> None:
        """Nothing where tasks run in another thread (an embedded worker's): there the signal would end the process."""
        if self.hears:
            self.interrupting = (run, error)
            os.kill(os.getpid(), signal.SIGUSR2)


_watch = Watch()


@contextmanager
def watch(batch: Batch, run: Run) -> Iterator[None]:
    _watch.start()
    _watch.current = (batch, run)
    try:
        yield
    finally:
        _watch.current = None
