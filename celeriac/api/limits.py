"""Token buckets: limits on the rate of requests, for each process: three servers allow three times as much."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds that health waits for the check of the token, and for the doctor's findings.
ASIDE = 2.0

#: Maximum number of callers remembered; those with a full bucket are forgotten first.
MOST = 10_000


class Buckets:
    """A bucket for each key: `burst` at once, `rate` a second after that."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> float:
        """Take one from the key's bucket and return 0; if it is empty, return the seconds to wait."""
        level = self._level(key)
        if level < 1:
            return (1 - level) / self.rate
        self._levels[key] = (level - 1, self.clock())
        if len(self._levels) > MOST:
            self._forget()
        return 0.0

    def wait(self, key: str) -> float:
        """Return the seconds until one can be taken. Takes none."""
        return max(0.0, (1 - self._level(key)) / self.rate)

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (self.burst, 0.0))
        return min(self.burst, level + (self.clock() - at) * self.rate)

    def _forget(self) -> None:
        """Forget keys whose buckets are full again; if none is, the half that has not been used for longest."""
        kept = {key: self._levels[key] for key in self._levels if self._level(key) < self.burst}
        newest = sorted(kept.items(), key=lambda entry: entry[1][1])[-MOST // 2 :]
        self._levels = kept if len(kept) < MOST else dict(newest)
