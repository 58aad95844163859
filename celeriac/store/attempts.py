"""Attempts to connect: a process whose Postgres lets nobody in tries seldom, however many of its threads ask.

The first failure is reported at once. After it whoever needs a connection gets the same error without an attempt, until
a rest is over that doubles with each further failure; then one thread tries, and the others get the last error until it
knows.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psycopg2

T = TypeVar("T")

#: Seconds of the first rest, and of the longest; each is up to a half shorter by chance (jitter).
FIRST, LONGEST = 0.1, 1.0

#: An attempt that is under way keeps the others from trying for so long (seconds).
UNDER_WAY = 5.0


@dataclass(frozen=True, slots=True)
class _LastRefusal:
    error: psycopg2.OperationalError
    rest: float
    until: float


class Attempts:
    """Those of a process at one server.

    No lock: a signal handler may enqueue, too, and would wait for its own thread. Two attempts at once do no harm.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failure: _LastRefusal | None = None

    def connect(self, connect: Callable[[], T]) -> T:
        """Raises what `connect` raised last where it is too early for another attempt."""
        before = self._failure
        if before is not None:
            if self._clock() < before.until:
                raise type(before.error)(*before.error.args)
            self._failure = _LastRefusal(before.error, before.rest, self._clock() + UNDER_WAY)
        try:
            made = connect()
        except psycopg2.OperationalError as error:
            rest = FIRST if before is None else min(LONGEST, before.rest * 2)
            self._failure = _LastRefusal(error, rest, self._clock() + rest * random.uniform(0.5, 1.0))
            raise
        except BaseException:
            self._failure = before
            raise
        self._failure = None
        return made


_by_address: weakref.WeakValueDictionary[str, Attempts] = weakref.WeakValueDictionary()


def at(address: str) -> Attempts:
    """The same for all who connect there."""
    return _by_address.setdefault(address, Attempts())
