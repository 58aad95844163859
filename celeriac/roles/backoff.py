"""Backoff: how long a task waits before it is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from random import SystemRandom

#: A random source of its own: the process's belongs to the application, which may have seeded it.
_DICE = SystemRandom()


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base` × 2^n seconds, at most `maximum`. `jitter`: 0 = none, 0.2 = ±20 %, True = anywhere below (full jitter).

    Full jitter is Celery's own (`retry_jitter=True`), after Brooker, "Exponential Backoff And Jitter", AWS 2015.
    """

    base: float = 1.0
    maximum: float = 600.0
    jitter: float | bool = True

    def seconds(self, retry: int, draw: float | None = None) -> float:
        """Return the delay before retry number `retry` (the first is 0); `draw` in [0, 1) replaces chance in tests."""
        # The exponent is bounded: 2.0 ** 1024 overflows, and no maximum lies beyond 2 ** 64 seconds.
        delay = min(self.maximum, self.base * 2.0 ** min(retry, 64))
        chance = _DICE.random() if draw is None else draw
        if self.jitter is True:
            return delay * chance
        return delay * (1 + float(self.jitter) * (2 * chance - 1))
