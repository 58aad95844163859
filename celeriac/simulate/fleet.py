"""The fleet as discrete events: arrivals, kicks, tickets in the queue, workers that take them, beat's passes.

As in the engine, what is claimed waits in the queue in its order; all else waits in the backlog, where a pass decides.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

from celeriac.dispatch.passes import PASSES
from celeriac.dispatch.publish import rows_per_ticket, split
from celeriac.dispatch.window import may_claim, refill_below
from celeriac.roles.role import Role
from celeriac.simulate.backlog import Backlog, Task
from celeriac.simulate.locks import Locks


@dataclass(frozen=True)
class Pace:
    """Seconds the machinery takes. `arrive`: from the call to an idle worker's pass; `between`: two tickets."""

    arrive: float = 0.01
    between: float = 0.005


class _Event(IntEnum):
    KICK = 0
    END = 1
    FREE = 2
    BEAT = 3
    LOOK = 4


class Fleet:
    """Runs until nothing is left. Tells each ticket's tasks as they start, and each `look_every` seconds the state."""

    def __init__(
        self, role: Role, backlog: Backlog, workers: int, pace: Pace, *,
        on_start: Callable[[Task, float], None], on_look: Callable[[float], None] | None = None,
        look_every: float = 60.0,
    ) -> None:  # fmt: skip
        self.role = role
        self.backlog = backlog
        self.workers = self.idle = workers
        self.pace = pace
        self.on_start = on_start
        self.on_look = on_look
        self.look_every = look_every
        self.locks = Locks()
        self.seconds_per_task: float | None = None
        self.kicked = False
        self.now = self.ended = 0.0
        self._queue: deque[list[Task]] = deque()  # an empty one is a kick
        self._events: list[tuple[float, int, _Event, list[Task]]] = []
        self._number = count()
        self._more = False

    @property
    def running(self) -> int:
        """Processes at work."""
        return self.workers - self.idle

    def run(self, arrivals: Iterable[Task]) -> None:
        """In the order of time."""
        coming = iter(arrivals)
        task = next(coming, None)
        self._more = task is not None
        self._in(self.role.every, _Event.BEAT)
        if self.on_look:
            self._in(0.0, _Event.LOOK)
        while task is not None or self._events:
            if task is not None and (not self._events or task.due <= self._events[0][0]):
                self.now = max(self.now, task.due)
                self._arrive(task)
                task = next(coming, None)
                self._more = task is not None
            else:
                self.now, _, event, ticket = heapq.heappop(self._events)
                self._happen(event, ticket)

    def _arrive(self, task: Task) -> None:
        if self.locks.take(task):
            self.backlog.add(task)
            self._kick()

    def _kick(self) -> None:
        """One is under way at most: whoever takes it up sees what has come until then."""
        if self.role.prompt and not self.kicked:
            self.kicked = True
            self._in(self.pace.arrive, _Event.KICK)

    def _happen(self, event: _Event, ticket: list[Task]) -> None:
        match event:
            case _Event.KICK:
                self._queue.append([])
            case _Event.END:
                self._end(ticket)
            case _Event.FREE:
                self.idle += 1
            case _Event.BEAT:
                self._dispatch()
                self._again(self.role.every, event)
            case _Event.LOOK:
                if self.on_look:
                    self.on_look(self.now)
                self._again(self.look_every, event)
        while self.idle and self._queue:
            self._take(self._queue.popleft())

    def _again(self, seconds: float, event: _Event) -> None:
        if self._more or self.backlog.waiting or self.backlog.active:
            self._in(seconds, event)

    def _take(self, ticket: list[Task]) -> None:
        """A kick asks for a pass; the first of its tickets stays with the worker that runs it."""
        if not ticket:
            self.kicked = False
            if not (tickets := self._claim()):
                return
            ticket = tickets[0]
            self._queue.extend(tickets[1:])
        self.idle -= 1
        for task in ticket:
            self.on_start(task, self.now)
        self._in(sum(task.seconds for task in ticket), _Event.END, ticket)

    def _end(self, ticket: list[Task]) -> None:
        self.ended = self.now
        for task in ticket:
            self.backlog.settle(task)
            if (following := self.locks.release(task)) is not None:
                self.backlog.add(following)
        self._observe(sum(task.seconds for task in ticket) / len(ticket))
        if self.role.prompt and self.backlog.waiting and self.backlog.active < refill_below(self.role):
            self._dispatch()
        self._in(self.pace.between, _Event.FREE)

    def _dispatch(self) -> None:
        for _ in range(PASSES if self.role.prompt else 1):
            if not (tickets := self._claim()):
                return
            self._queue.extend(tickets)

    def _claim(self) -> list[list[Task]]:
        """One pass: its tickets."""
        free = may_claim(self.role, self.backlog.active, self.workers, self.seconds_per_task)
        taken = self.backlog.run_pass(free)
        if not taken:
            return []
        role = self.role
        size = rows_per_ticket(role.chunk, self.seconds_per_task, role.chunk_target, len(taken), self.workers)
        return split(taken, size)

    def _observe(self, seconds: float) -> None:
        """As `registry.observe`."""
        before = seconds if self.seconds_per_task is None else self.seconds_per_task
        self.seconds_per_task = (before + seconds) / 2

    def _in(self, seconds: float, event: _Event, ticket: list[Task] | None = None) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), event, ticket or []))
