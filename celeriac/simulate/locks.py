"""Lock keys: one task of a key at a time is claimed or runs; the best waiting one is next, as in `hand_over`."""

from __future__ import annotations

import heapq

from celeriac.simulate.backlog import SimulatedTask


class SimulatedLocks:
    def __init__(self) -> None:
        self._behind: dict[str, list[SimulatedTask]] = {}

    def take(self, task: SimulatedTask) -> bool:
        """Return whether the task gets its key; if not, it is queued for it."""
        if task.key is None:
            return True
        if (behind := self._behind.get(task.key)) is None:
            self._behind[task.key] = []
            return True
        heapq.heappush(behind, task)
        return False

    def release(self, task: SimulatedTask) -> SimulatedTask | None:
        """Release a finished task's key and return its next lock holder, if any."""
        if task.key is None:
            return None
        if behind := self._behind[task.key]:
            return heapq.heappop(behind)
        del self._behind[task.key]
        return None
