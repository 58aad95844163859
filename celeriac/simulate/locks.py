"""Lock keys: one task at a time is claimed or runs; the next is the best of those behind it, as `hand_over` has it."""

from __future__ import annotations

import heapq

from celeriac.simulate.backlog import SimulatedTask


class SimulatedLocks:
    def __init__(self) -> None:
        self._behind: dict[str, list[SimulatedTask]] = {}

    def take(self, task: SimulatedTask) -> bool:
        """Whether it is its key's head; if not, it waits behind it."""
        if task.key is None:
            return True
        if (behind := self._behind.get(task.key)) is None:
            self._behind[task.key] = []
            return True
        heapq.heappush(behind, task)
        return False

    def release(self, task: SimulatedTask) -> SimulatedTask | None:
        """The next head of its key, now that it is over."""
        if task.key is None:
            return None
        if behind := self._behind[task.key]:
            return heapq.heappop(behind)
        del self._behind[task.key]
        return None
