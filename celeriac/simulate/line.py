"""A role in the fleet: its ready tasks, its scheduled tasks, and the machinery's pace."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from celeriac.dispatch.publish import rows_per_ticket, split
from celeriac.dispatch.room import QUIET
from celeriac.dispatch.window import may_claim, refill_below, window
from celeriac.roles.role import Role
from celeriac.simulate.backlog import Backlog, SimulatedTask
from celeriac.simulate.locks import SimulatedLocks


@dataclass(frozen=True)
class TicketPace:
    """Seconds the machinery takes. `arrive`: from a call to an idle worker's pass. `between`: between two tickets."""

    arrive: float = 0.01
    between: float = 0.005


class SimulatedRole:
    """A role in the fleet. `kicked`: True while a wake-up is under way and its pass has not begun."""

    def __init__(self, role: Role, backlog: Backlog, pace: TicketPace) -> None:
        self.role = role
        self.backlog = backlog
        self.pace = pace
        self.kicked = False
        self._seconds_per_task: float | None = None
        self._passed_at = -math.inf
        self._later: list[SimulatedTask] = []

    @property
    def is_over(self) -> bool:
        return not (self.backlog.waiting or self.backlog.active or self._later)

    def pays(self, now: float, workers: int) -> bool:
        """Return whether a pass would find work and free slots, as `Dispatcher.has_work_and_room` does.

        The engine's method may return True a little later: not while each slot has had a ticket for less than a second.
        """
        limit = window if now - self._passed_at >= QUIET else refill_below
        most = limit(self.role, workers, self._seconds_per_task)
        return bool(self.backlog.waiting or self._later) and self.backlog.active < most

    def come(self, task: SimulatedTask, locks: SimulatedLocks) -> bool:
        """Add a due task; return whether to send a wake-up. None is sent for scheduled tasks, which wait for a pass."""
        if task.later:
            heapq.heappush(self._later, task)
            return False
        return self._ready(task, locks)

    def promote(self, locks: SimulatedLocks) -> None:
        """Make due tasks ready, or queue them behind their lock holder."""
        later, self._later = self._later, []
        for task in sorted(later, key=lambda task: task.due):
            self._ready(task, locks)

    def claim(self, locks: SimulatedLocks, workers: int, now: float) -> list[list[SimulatedTask]]:
        """Run one pass and return its tickets."""
        self.promote(locks)
        free = may_claim(self.role, self.backlog.active, workers, self._seconds_per_task)
        taken = self.backlog.run_pass(free)
        self._passed_at = now
        if not taken:
            return []
        role = self.role
        return split(taken, rows_per_ticket(role.chunk, self._seconds_per_task, role.chunk_target, len(taken), workers))

    def observe(self, seconds: float) -> None:
        """Average the seconds per task, as `registry.observe` does."""
        before = seconds if self._seconds_per_task is None else self._seconds_per_task
        self._seconds_per_task = (before + seconds) / 2

    def _ready(self, task: SimulatedTask, locks: SimulatedLocks) -> bool:
        if not locks.take(task):
            return False
        self.backlog.add(task)
        return True
