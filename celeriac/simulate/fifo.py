"""First come, first served: what one queue and the same processes make of the same arrivals."""

from __future__ import annotations

import heapq


class Fifo:
    """`between`: seconds a process needs from one task to the next; `arrive`: from the call to an idle one's start."""

    def __init__(self, workers: int, arrive: float, between: float) -> None:
        self.arrive = arrive
        self.between = between
        self._free_at = [0.0] * workers

    def start(self, due: float, seconds: float) -> float:
        """When it starts. Call it in the order in which tasks are due."""
        start = max(due + self.arrive, self._free_at[0])
        heapq.heapreplace(self._free_at, start + seconds + self.between)
        return start
