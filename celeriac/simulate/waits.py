"""Waits of tasks: of all together, of some accounts, and each account's mean and longest wait."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Sequence

#: The logarithm of a bucket's relative width. A quantile's error is at most half of it.
STEP = math.log(1.01)

#: A shorter time (seconds) is no wait.
SHORTEST = 0.001


class WaitTimes:
    """Waits counted in buckets that grow by a hundredth; the mean and the longest are exact."""

    def __init__(self) -> None:
        self.n = 0
        self.sum = self.max = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self.n += 1
        self.sum += seconds
        self.max = max(self.max, seconds)
        self._buckets[math.ceil(math.log(seconds / SHORTEST) / STEP) if seconds > SHORTEST else 0] += 1

    @property
    def mean(self) -> float:
        return self.sum / self.n if self.n else 0.0

    def quantile(self, share: float) -> float:
        """Return the quantile: `share` of the waits are below it."""
        rank, below = share * self.n, 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            if below >= rank:
                return min(self.max, SHORTEST * math.exp((bucket - 0.5) * STEP)) if bucket else 0.0
        return 0.0


class Ledger:
    """Waits by account: mean and longest for each, and a `WaitTimes` for those `watched`."""

    def __init__(self, accounts: int, watched: Collection[int] = ()) -> None:
        self.all = WaitTimes()
        self.watched = {account: WaitTimes() for account in watched}
        self._n = array("I", bytes(4 * accounts))
        self._sum = array("d", bytes(8 * accounts))
        self._max = array("d", bytes(8 * accounts))

    def add(self, account: int, seconds: float) -> None:
        self.all.add(seconds)
        if (own := self.watched.get(account)) is not None:
            own.add(seconds)
        self._n[account] += 1
        self._sum[account] += seconds
        if seconds > self._max[account]:
            self._max[account] = seconds

    def means(self) -> list[float]:
        """Return the mean wait of each account that had a task, ascending."""
        return sorted(total / n for total, n in zip(self._sum, self._n, strict=True) if n)

    def longest(self) -> list[float]:
        """Return the longest wait of each account that had a task, ascending."""
        return sorted(most for most, n in zip(self._max, self._n, strict=True) if n)


def at(ascending: Sequence[float], share: float) -> float:
    """Return the quantile of a sorted list: `share` of its values are below it; 0 for an empty list."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else 0.0
