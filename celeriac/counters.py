"""Counts and durations of what a process does, for its port (`CELERIAC_METRICS_ADDRESS`).

Nothing is counted if no port is set. A child of a pool has no port: its counts go to its parent with each ticket
(`taken`, `add`). Names and labels are those of `celeriac.metrics.catalogue`, which describes them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from celeriac.store.forks import after_fork

#: Upper bounds (seconds) of how long statements and passes take; each bucket includes its bound.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

#: A figure's name, and its labels' values.
Key = tuple[str, ...]

_NOTHING: AbstractContextManager[Any] = nullcontext()


class Counters:
    """The counters of a process. Thread-safe. A forked process begins at 0."""

    def __init__(self) -> None:
        self.is_on = False
        self._begin()
        self._is_child = False
        after_fork(self._forked)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._empty()

    def _empty(self) -> None:
        self._totals: Counter[Key] = Counter()
        self._buckets: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self._seconds: defaultdict[Key, float] = defaultdict(float)

    def _forked(self) -> None:
        self._begin()
        self._is_child = True

    def turn(self, on: bool) -> None:
        """Turn counting on or off, in the process that has the port, before it forks others."""
        self.is_on, self._is_child = on, False

    def count(self, n: int, *key: str) -> None:
        if self.is_on and n:
            with self._lock:
                self._totals[key] += n

    def took(self, seconds: float, *key: str) -> None:
        if self.is_on:
            with self._lock:
                self._buckets[key][bisect_left(BOUNDS, seconds)] += 1
                self._seconds[key] += seconds

    def timing(self, *key: str) -> AbstractContextManager[Any]:
        """Return a context that adds how long it took, also if it raises."""
        return _Timing(self, key) if self.is_on else _NOTHING

    def total(self, *key: str) -> int:
        return self._totals[key]

    def known(self, name: str) -> list[Key]:
        """Return the keys that were counted for a growing figure."""
        with self._lock:
            return [key for key in self._totals if key[0] == name]

    def times(self, *key: str) -> tuple[list[int], float]:
        """Return the counts by `BOUNDS`, with one more for what took longer, and the seconds of all."""
        with self._lock:
            counts = self._buckets.get(key, Counter[int]())
            return [counts[n] for n in range(len(BOUNDS) + 1)], self._seconds.get(key, 0.0)

    def taken(self) -> dict[str, Any]:
        """Return and clear a child's counts since the last time, for its parent to `add`;
        in another process nothing.
        """
        if not (self.is_on and self._is_child):
            return {}
        with self._lock:
            counted = (self._totals, dict(self._buckets), dict(self._seconds))
            self._empty()
        return {"counted": counted} if any(counted) else {}

    def add(self, counted: tuple[Counter[Key], dict[Key, Counter[int]], dict[Key, float]]) -> None:
        totals, buckets, seconds = counted
        with self._lock:
            self._totals.update(totals)
            for key, some in buckets.items():
                self._buckets[key].update(some)
                self._seconds[key] += seconds[key]


class _Timing:
    __slots__ = ("_began", "_counters", "_key")

    def __init__(self, counters: Counters, key: Key) -> None:
        self._counters, self._key = counters, key

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._counters.took(time.perf_counter() - self._began, *self._key)


#: The counters of this process.
COUNTERS = Counters()
