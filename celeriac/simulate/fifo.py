"""First come, first served: the same arrivals and processes with one plain queue, for comparison."""

from __future__ import annotations

import heapq


class Fifo:
    """The queue.

    `between`: seconds between two tasks of a process. `arrive`: from the call to an idle process' start.
    """

    def __init__(self, workers: int, arrive: float, between: float) -> None:
        self.arrive = arrive
        self.between = between
        self._free_at = [0.0] * workers

    def start(self, due: float, seconds: float) -> float:
        """Return when the task starts. Call it in the order in which tasks are due."""
        start = max(due + self.arrive, self._free_at[0])
        heapq.heapreplace(self._free_at, start + seconds + self.between)
        return start
