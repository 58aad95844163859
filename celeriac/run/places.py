"""Places: where tasks run one by one. A process is one; a pool of threads or greenlets has many in a process."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

from billiard.pool import EX_RECYCLE
from billiard.process import current_process

from celeriac.run import descriptors, shared
from celeriac.run.run import Run

logger = logging.getLogger(__name__)

#: Signals that ask a process to end.
STOPS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)

#: Descriptors are not counted after a handler that took less than this time (seconds): it has opened a few files at
#: most.
BRIEF = 50e-6


class OpenTicket(Protocol):
    """A ticket whose tasks run here, as the watch sees it."""

    def lease_ends_soon(self) -> bool: ...
    def give_up_waiting(self) -> None: ...


class Place(ABC):
    """One place. `number`: its slot among those that the worker's parent reads. `current`: what runs there.

    `stopping`: nothing more begins there.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.current: tuple[OpenTicket, Run] | None = None
        self.stopping = False

    def stop(self, run: Run, error: BaseException) -> bool:
        """Cancel a coroutine; interrupt any other handler, and a coroutine that blocks or ignores the cancel."""
        awaited = run.awaited
        return self.interrupt(run, error) if awaited is None or awaited.stop(run, error) else True

    def count_descriptors(self) -> None:
        """Replace a process that has hardly any file descriptors left: whatever a task opens there would fail."""
        if descriptors.has_few() and self.make_way():
            logger.warning("Hardly a file descriptor is left: this process makes way for another")

    def make_way(self) -> bool:
        """Begin nothing more in this process, so that it ends and another takes its place; return whether it can be
        replaced.
        """
        if self.stopping or places.end is None:
            return False
        self.stopping = True
        places.end()
        return True

    @abstractmethod
    def interrupt(self, run: Run, error: BaseException) -> bool:
        """Raise the error in the run's handler if that is still under way; return False if it has to be tried again."""


class Process(Place):
    """A whole process as a place: a signal interrupts its main thread."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.interrupting: tuple[Run, BaseException] | None = None
        self.leaving = self.hears = False
        self.before: dict[int, Any] = {}
        self.listen()

    def listen(self) -> None:
        """Install the signal handlers again, since Celery resets them after a fork.

        In tests the main thread and an embedded worker's take turns, and a test that sets another handler for a while
        may leave none: then the signal would end the process.
        """
        hears = threading.current_thread() is threading.main_thread()
        if hears and signal.getsignal(signal.SIGUSR2) != self._interrupted:
            signal.signal(signal.SIGUSR2, self._interrupted)
        if hears and current_process().daemon:
            self._outlast_stops()
        self.hears = hears

    def _outlast_stops(self) -> None:
        """Delay signals that ask a pool's process to end until its ticket has ended, because its whole process group
        gets them. If that takes too long, its parent ends it.
        """
        for number in STOPS:
            before = signal.getsignal(number)
            if before not in (self._told_to_stop, signal.SIG_IGN):
                self.before[number] = before
                signal.signal(number, self._told_to_stop)

    def _told_to_stop(self, number: int, frame: Any) -> None:
        if places.idle_since is None or places.is_busy:
            self.stopping = True
        elif callable(before := self.before[number]):
            before(number, frame)
        else:
            sys.exit(0)

    def interrupt(self, run: Run, error: BaseException) -> bool:
        """Interrupt the handler. Do nothing if tasks run in another thread (an embedded worker's),
        where the signal would end the process.
        """
        if self.hears:
            self.interrupting = (run, error)
            os.kill(os.getpid(), signal.SIGUSR2)
        return True

    def make_way(self) -> bool:
        if not (self.hears and current_process().daemon):
            return super().make_way()
        before, self.stopping = self.stopping, True
        return not before

    def leave(self) -> None:
        """End the process, unless it has got another ticket meanwhile."""
        self.leaving = True
        os.kill(os.getpid(), signal.SIGUSR2)

    def _interrupted(self, *_: Any) -> None:
        """Raise the interrupt in the main thread, if the handler it is meant for still runs there."""
        if self.leaving and places.idle_since is not None and not places.is_busy:
            sys.exit(EX_RECYCLE)
        self.leaving = False
        wanted, current = self.interrupting, self.current
        self.interrupting = None
        if wanted and current and current[1] is wanted[0] and wanted[0].outcome is None:
            raise wanted[1]


class SharedPlace(Place):
    """One of many places in a process. None of them may end the process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.inside: Run | None = None

    @abstractmethod
    def call(self, run: Run, handler: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the handler; an interrupt is raised within this call or not at all."""


class Places:
    """The places of this process: one that is the process, or one of a shared kind for each ticket under way.

    `idle_since`: when the last ticket was over, if there is none; `is_busy`: there is one. `orphans`: tokens of tickets
    whose tasks could not be released, in a process that goes on. `wake`: makes a process that fills its slots by its
    own passes check a role. `alone`: Redis is away, and work is found by polls only. `end`: ends a worker whose own
    process runs its tasks.
    """

    alone = is_busy = False
    end: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.kind: type[SharedPlace] | None = None
        self.wake: Callable[[str], None] | None = None
        self.idle_since: float | None = None
        self.orphans: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.forget()

    def forget(self) -> None:
        """Start with no places in a forked process."""
        self.only: Process | None = None
        self._lock = threading.Lock()
        self._taken: dict[int, SharedPlace] = {}
        self._free: list[int] = []
        self._made = 0

    def take(self) -> Place:
        """Return this thread's place for a ticket."""
        if self.kind is None:
            if self.only is None:
                self.only = Process(shared.place())
                descriptors.note_own()
            self.only.listen()
            return self.only
        with self._lock:
            if not self._free:
                heappush(self._free, self._made)
                self._made += 1
            place = self.kind(heappop(self._free))
            self._taken[threading.get_ident()] = place
        return place

    def give_back(self, place: Place) -> None:
        place.current = None
        if place is not self.only:
            with self._lock:
                self._taken.pop(threading.get_ident())
                heappush(self._free, place.number)

    def mine(self) -> SharedPlace | None:
        """Return this thread's place, if the process has many."""
        return self._taken.get(threading.get_ident())

    def taken(self) -> list[Place]:
        with self._lock:
            return [*filter(None, [self.only]), *self._taken.values()]


#: The places of this process.
places = Places()
