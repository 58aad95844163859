"""A made-up day: accounts by Zipf's law, busy hours and quiet ones, and one customer that enqueues much at once."""

from __future__ import annotations

import heapq
import math
import random
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from celeriac.simulate.backlog import SimulatedTask

#: The part of the mean by which the busiest hour exceeds it, and the quietest falls below it.
SWING = 0.6

#: The noisy customer's part of the day's tasks, the number of its bursts, and how long (seconds) one lasts.
NOISE, BURSTS, BURST = 0.1, 3, 60.0

#: Number of the largest accounts whose waits are reported one by one.
HEAVIEST = 3

#: Steps of a day in the estimate of the most waiting tasks.
STEPS = 1_000


@dataclass(frozen=True)
class Day:
    """A day. `rate`: tasks a second, on average. `seconds`: the mean duration of a task, by a lognormal law.

    The same values give the same day.
    """

    accounts: int
    hours: float
    rate: float
    seconds: float
    seed: int = 0

    @property
    def length(self) -> float:
        """The day's length in seconds. It goes from quiet to busy and back once, whatever its length."""
        return self.hours * 3600

    @cached_property
    def names(self) -> list[str]:
        digits = len(str(self.accounts - 1))
        return [f"{n:0{digits}}" for n in range(self.accounts)]

    @cached_property
    def by_size(self) -> array[int]:
        """The accounts, those with most tasks first. The order of their names is unrelated."""
        order = array("I", range(self.accounts))
        random.Random(self.seed).shuffle(order)
        return order

    @property
    def noisy(self) -> int:
        """The noisy customer's account, which has an ordinary size apart from its bursts."""
        return self.by_size[self.accounts // 2]

    @property
    def heaviest(self) -> list[int]:
        return [account for account in self.by_size[: HEAVIEST + 1] if account != self.noisy][:HEAVIEST]

    def arrivals(self) -> Iterator[SimulatedTask]:
        """Yield the tasks in the order of time; each is made when needed."""
        for number, (due, account, seconds) in enumerate(heapq.merge(self._customers(), self._noise())):
            yield SimulatedTask(0, due, number, account, seconds)

    def _customers(self) -> Iterator[tuple[float, int, float]]:
        dice = random.Random(f"customers {self.seed}")
        sizes = array("d", accumulate(1 / rank for rank in range(1, self.accounts + 1)))
        by_size, whole, now = self.by_size, sizes[-1], 0.0
        usual = self._usual()
        while (now := now + dice.expovariate(self._customers_at(now))) < self.length:
            yield now, by_size[bisect_left(sizes, dice.random() * whole)], dice.lognormvariate(usual, 1.0)

    def _noise(self) -> Iterator[tuple[float, int, float]]:
        dice = random.Random(f"noise {self.seed}")
        noisy, usual = self.noisy, self._usual()
        for part in self._bursts():
            begins = self.length * part
            for due in sorted(begins + dice.random() * min(BURST, self.length / 100) for _ in range(self._burst())):
                yield due, noisy, dice.lognormvariate(usual, 1.0)

    def most_waiting(self, capacity: float) -> float:
        """Estimate the most tasks that wait if `capacity` a second end. Arrivals are a flow, a burst comes at once."""
        step, bursts = self.length / STEPS, {round(STEPS * part) for part in self._bursts()}
        waiting = most = 0.0
        for n in range(STEPS):
            waiting += self._burst() if n in bursts else 0
            most = max(most, waiting)
            waiting = max(0.0, waiting + (self._customers_at((n + 0.5) * step) - capacity) * step)
        return max(most, waiting)

    def _customers_at(self, now: float) -> float:
        """Return the arrivals (tasks a second) without the noisy customer's bursts."""
        return self.rate * (1 - NOISE) * (1 - SWING * math.cos(2 * math.pi / self.length * now))

    def _bursts(self) -> list[float]:
        """Return the starts of the bursts, as parts of the day."""
        return [burst / (BURSTS + 1) for burst in range(1, BURSTS + 1)]

    def _burst(self) -> int:
        """Return the number of tasks in a burst."""
        return int(self.rate * NOISE * self.length / BURSTS)

    def _usual(self) -> float:
        """Return the logarithm of the median, with which the mean is `seconds`."""
        return math.log(self.seconds) - 0.5
