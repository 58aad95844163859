"""Late: what somebody's lock kept from being done is done by a thread, while its process takes the next ticket.

An outcome that is known is not lost for a lock, and its task does not run again: it is written once the lock is gone.
Its lease counts from the worker's heartbeat meanwhile (decision 38).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from celery.signals import worker_process_shutdown
from sqlalchemy.exc import DBAPIError

from celeriac.errors import NotSettled
from celeriac.run.held_up import HeldUp
from celeriac.store.connections import Database
from celeriac.store.failures import in_a_line, is_gone, is_locked, is_passing
from celeriac.store.patience import patient

logger = logging.getLogger(__name__)

#: How long (seconds) the first of a round waits for its lock, so that whoever looks sees whom it waits for, and how
#: long each of the others does.
FIRST, OTHERS = 1.0, 0.05

#: Seconds between two rounds.
REST = 0.1

#: How long (seconds) a process that ends waits for what it still has to write, at most.
LAST = 10.0


@dataclass(frozen=True, slots=True)
class Delayed:
    """`act`: what is tried until it is done; False: not yet. `give_up`: after an error that does not pass by itself."""

    what: str
    database: Database
    act: Callable[[], bool]
    give_up: Callable[[BaseException], None]


class Late:
    """Of one process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a forked process: what its parent has is the parent's."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: list[Delayed] = []
        self._thread: threading.Thread | None = None

    def add(self, some: Delayed) -> None:
        if self._pid != os.getpid():
            self.forget()
        with self._lock:
            self._waiting.append(some)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="celeriac-late", daemon=True)
                self._thread.start()

    def is_empty(self) -> bool:
        return self._pid != os.getpid() or not self._waiting

    def finish(self, seconds: float = LAST) -> None:
        """Waits until all is done, or for so long."""
        until = time.monotonic() + seconds
        while not self.is_empty() and time.monotonic() < until:
            time.sleep(REST)

    def _work(self) -> None:
        held_up: HeldUp | None = None
        while True:
            with self._lock:
                round_of = list(self._waiting)
                if not round_of:
                    self._thread = None
                    return
            held_up = held_up or HeldUp(round_of[0].database)
            for n, one in enumerate(round_of):
                if self._try(one, FIRST if n == 0 else OTHERS, held_up):
                    with self._lock:
                        self._waiting.remove(one)
            with self._lock:  # another one is the first of the next round
                self._waiting = self._waiting[1:] + self._waiting[:1]
            time.sleep(REST)

    def _try(self, one: Delayed, patience: float, held_up: HeldUp) -> bool:
        """Whether there is nothing left of it to do."""
        saying = threading.Timer(patience / 2, held_up.say, (one.what,))
        saying.daemon = True
        if patience == FIRST:
            saying.start()
        try:
            with patient(patience):
                return one.act()
        except Exception as error:
            if isinstance(error, NotSettled) or (isinstance(error, DBAPIError) and is_passing(error)):
                if not is_locked(error) and not is_gone(error):
                    logger.warning("%s is tried again: %s", one.what, in_a_line(error))
                return False
            logger.exception("%s could not be done", one.what)
            one.give_up(error)
            return True
        finally:
            saying.cancel()


#: This process's.
late = Late()


@worker_process_shutdown.connect(weak=False)
def _finish(**_: object) -> None:
    late.finish()
