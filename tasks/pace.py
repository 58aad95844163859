"""How hard an outside service may be asked: calls spaced evenly, and waiting as it says when that was too hard."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from celeriac import Task

RETRY_AFTER_DEFAULT = 3.0  # Where a service documents no Retry-After: Duda's tightest limit is 20 publishes a minute.
RETRY_AFTER_LIMIT = 3600.0

#: Statuses of a refusal that passes: the server gave up waiting for the request, something else is at the same thing,
#: or it is too early (RFC 9110, 15.5.9 and 15.5.10; RFC 4918, 11.3; RFC 8470, 5.2).
PASSING = frozenset({408, 409, 423, 425})


class NotNow(Exception):
    """A service takes nothing from any of us, whatever is asked. `retry_after`: seconds until the next request."""

    retry_after: float


class RateLimited(NotNow):
    """It was asked too often."""

    service = "the service"

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.service}'s rate limit is reached: try again in {self.retry_after:g} s"


@contextmanager
def waiting_out_limits(task: Task[..., Any]) -> Iterator[None]:
    """A rate limit, or whatever else concerns all who ask, costs the task no attempt."""
    try:
        yield
    except NotNow as limited:
        raise task.snooze(limited.retry_after, str(limited)) from limited


class Pace:
    """Spaces calls at least 1 / `per_second` seconds apart, for all threads together, in order of arrival."""

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._interval = 1.0 / per_second
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._next = -math.inf

    def wait(self) -> None:
        delay = self._reserve()
        if delay > 0:
            self._sleep(delay)

    def _reserve(self) -> float:
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._interval
            return turn - now


def retry_after_seconds(value: str | None, now: datetime) -> float:
    """Seconds to wait by a Retry-After header (RFC 9110, 10.2.3: seconds or a date), from 0 to an hour.

    Without a header, or with one that cannot be read, RETRY_AFTER_DEFAULT.
    """
    seconds = _delay_seconds((value or "").strip(), now)
    return RETRY_AFTER_DEFAULT if seconds is None else min(max(seconds, 0.0), RETRY_AFTER_LIMIT)


def _delay_seconds(value: str, now: datetime) -> float | None:
    if value.isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
