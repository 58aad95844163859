"""Late writes: a thread writes what somebody's lock has delayed, while the process takes the next ticket.

A known outcome is not lost to a lock, and its task does not run again: it is written once the lock is gone.
Meanwhile its lease counts from the worker's heartbeat (decision 38).
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

from celeriac import logged
from celeriac.errors import NotSettled
from celeriac.insights.why.blockers import blockers
from celeriac.store.connections import Database
from celeriac.store.failures import in_a_line, is_gone, is_locked, is_passing
from celeriac.store.patience import patient

logger = logging.getLogger(__name__)

#: Seconds that the first write of a round waits for its lock, long enough for the lock's holder to be found and logged;
#: and seconds that each other write waits.
FIRST, OTHERS = 1.0, 0.05

#: Seconds between two rounds.
REST = 0.1

#: The longest time (seconds) that a process waits at its exit for what it still has to write.
LAST = 10.0


@dataclass(frozen=True, slots=True)
class Delayed:
    """Work that a lock delays. `act` is called until it returns True.
    `give_up` is called after an error that is not passing.
    """

    what: str
    database: Database
    act: Callable[[], bool]
    give_up: Callable[[BaseException], None]


class Late:
    """The delayed work of one process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty in a forked process: the parent's work stays the parent's."""
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
        """Wait until all is done, at most `seconds`."""
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
            with self._lock:  # the next round begins with another one
                self._waiting = self._waiting[1:] + self._waiting[:1]
            time.sleep(REST)

    def _try(self, one: Delayed, patience: float, held_up: HeldUp) -> bool:
        """Try once; return whether it is done or given up."""
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


#: The delayed work of this process.
late = Late()


@worker_process_shutdown.connect(weak=False)
def _finish(**_: object) -> None:
    late.finish()


#: Seconds between two lines.
SAY_EVERY = 10.0


class HeldUp:
    """Logs the locks that one thread meets."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._next = 0.0

    def say(self, what: str) -> None:
        """Log a line at once, then at most one each `SAY_EVERY` seconds. Never raises."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAY_EVERY
        try:
            with patient(0.5), self.database.statement() as connection:
                met = blockers(connection, longer_than=0.2)
        except Exception as error:
            logger.debug("Who holds a lock could not be asked: %s", error)
            met = []
        if not met:
            logger.warning("Somebody's lock is in the way, and what it concerns is done later: %s", what)
        for one in met:
            extra = logged.of("lock.held_up", pid=one.pid, login=one.login, application=one.name, seconds=one.seconds)
            logger.warning(
                "Somebody's lock is in the way, and what it concerns is done later: %s; %s",
                one.sentence,
                one.cure,
                extra=extra,
            )
