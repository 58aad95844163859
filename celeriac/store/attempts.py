"""Limit attempts to connect: while Postgres lets nobody in, a process tries seldom, however many threads it has.

The first failure is raised at once. During a rest after it, each thread that needs a connection gets the same error
without an attempt. Then one thread tries, and the others get the last error until that attempt has ended. The rest
doubles with each further failure.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import psycopg2

from celeriac.store.failures import is_operational

#: The attribute that marks an error which is raised again without an attempt.
_AGAIN = "of_celeriac_again"

#: Seconds of the first rest, and of the longest; each is up to a half shorter by chance (jitter).
FIRST, LONGEST = 0.1, 1.0

#: Seconds for which an attempt under way keeps other threads from trying.
UNDER_WAY = 5.0


@dataclass(frozen=True, slots=True)
class _LastRefusal:
    error: BaseException
    rest: float
    until: float


class Attempts:
    """The attempts of a process at one server.

    It has no lock: a signal handler may enqueue, too, and would wait for its own thread.
    Two attempts at once do no harm.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failure: _LastRefusal | None = None

    def begin(self, kind: type[Exception] = psycopg2.OperationalError) -> None:
        """Begin an attempt. Raises the last error, as `kind`, if it is too early for another one."""
        before = self._failure
        if before is None:
            return
        if self._clock() < before.until:
            again = kind(*before.error.args)
            again.__dict__[_AGAIN] = True
            raise again
        self._failure = _LastRefusal(before.error, before.rest, self._clock() + UNDER_WAY)

    def failed(self, error: BaseException) -> None:
        if is_operational(error) and _AGAIN not in error.__dict__:
            rest = FIRST if self._failure is None else min(LONGEST, self._failure.rest * 2)
            until = self._clock() + rest * random.uniform(0.5, 1.0)
            self._failure = _LastRefusal(error, rest, until)

    def succeeded(self) -> None:
        self._failure = None


_by_address: weakref.WeakValueDictionary[str, Attempts] = weakref.WeakValueDictionary()


def at(address: str) -> Attempts:
    """Return the attempts at this address: one object for all that connect there."""
    return _by_address.setdefault(address, Attempts())
