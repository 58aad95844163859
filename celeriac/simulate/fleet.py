"""The fleet as discrete events: arrivals, wake-ups, queued tickets, workers that take them, polls, beat's passes.

As in the engine, claimed tasks wait in the queue in its order; all others wait in the backlog for a pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import count

from celeriac.dispatch.passes import PASSES
from celeriac.simulate.backlog import SimulatedTask
from celeriac.simulate.line import SimulatedRole
from celeriac.simulate.locks import SimulatedLocks
from celeriac.simulate.queues import Queues


class _Event(IntEnum):
    KICK = 0
    END = 1
    FREE = 2
    BEAT = 3
    POLL = 4
    LOOK = 5


class Fleet:
    """The fleet, which runs until no task is left. Its processes serve all lines; each task names its line.

    `on_start` is called with each ticket's tasks as they start, `on_look` each `look_every` seconds. `poll`: seconds
    between two polls of workers for work without a wake-up; None: they do not poll.
    """

    def __init__(
        self, lines: Sequence[SimulatedRole], workers: int, *, on_start: Callable[[SimulatedTask, float], None],
        on_look: Callable[[float], None] | None = None, look_every: float = 60.0, poll: float | None = None,
    ) -> None:  # fmt: skip
        self.lines = lines
        self.workers = self.idle = workers
        self.on_start = on_start
        self.on_look = on_look
        self.look_every = look_every
        self.poll = poll
        self.locks = SimulatedLocks()
        self.now = self.ended = 0.0
        self._queues: Queues[tuple[int, list[SimulatedTask]]] = Queues((line.role.queue for line in lines), workers)
        self._events: list[tuple[float, int, _Event, int, list[SimulatedTask]]] = []
        self._number = count()
        self._more = False

    @property
    def running(self) -> int:
        """The number of busy processes."""
        return self.workers - self.idle

    def run(self, arrivals: Iterable[SimulatedTask]) -> None:
        """Run the arrivals, which are ordered by time. Tasks due before 0 arrive at 0."""
        coming = iter(arrivals)
        task = next(coming, None)
        self._more = task is not None
        for number, line in enumerate(self.lines):
            self._in(line.role.every, _Event.BEAT, number)
        if self.poll:
            self._in(self.poll, _Event.POLL)
        if self.on_look:
            self._in(0.0, _Event.LOOK)
        while task is not None or self._events:
            if task is not None and (not self._events or task.due <= self._events[0][0]):
                self.now = max(self.now, task.due)
                if self.lines[task.line].come(task, self.locks):
                    self._kick(task.line)
                task = next(coming, None)
                self._more = task is not None
            else:
                self.now, _, event, number, ticket = heapq.heappop(self._events)
                self._happen(event, number, ticket)

    def _kick(self, number: int) -> None:
        """Send a wake-up, unless one is under way: the process that takes it sees all arrivals until then."""
        line = self.lines[number]
        if line.role.prompt and not line.kicked:
            line.kicked = True
            self._in(line.pace.arrive, _Event.KICK, number)

    def _happen(self, event: _Event, number: int, ticket: list[SimulatedTask]) -> None:
        match event:
            case _Event.KICK:
                self._publish(number, [[]])
            case _Event.END:
                self._end(number, ticket)
            case _Event.FREE:
                self.idle += 1
            case _Event.BEAT:
                self._dispatch(number)
                self._again(self.lines[number].role.every, event, number)
            case _Event.POLL:
                self._poll()
                self._again(self.poll or 0.0, event)
            case _Event.LOOK:
                if self.on_look:
                    self.on_look(self.now)
                self._again(self.look_every, event)
        while self.idle and (taken := self._queues.take()):
            self._take(*taken)

    def _again(self, seconds: float, event: _Event, number: int = 0) -> None:
        if self._more or not all(line.is_over for line in self.lines):
            self._in(seconds, event, number)

    def _take(self, number: int, ticket: list[SimulatedTask]) -> None:
        """Run a ticket. An empty one is a wake-up: it runs a pass, whose first ticket the process keeps."""
        if not ticket:
            self.lines[number].kicked = False
            if not (tickets := self.lines[number].claim(self.locks, self.workers, self.now)):
                return
            ticket = tickets[0]
            self._publish(number, tickets[1:])
        self.idle -= 1
        for task in ticket:
            self.on_start(task, self.now)
        self._in(sum(task.seconds for task in ticket), _Event.END, number, ticket)

    def _end(self, number: int, ticket: list[SimulatedTask]) -> None:
        self.ended, line = self.now, self.lines[number]
        for task in ticket:
            line.backlog.settle(task)
            if (following := self.locks.release(task)) is not None:
                self.lines[following.line].backlog.add(following)
                if following.line != number:
                    self._kick(following.line)
        line.observe(sum(task.seconds for task in ticket) / len(ticket))
        if line.role.prompt and line.pays(self.now, self.workers):
            self._dispatch(number)
        after = [task.after for task in ticket if task.after is not None]
        self._in(sum(after) if after else line.pace.between, _Event.FREE)

    def _poll(self) -> None:
        for number, line in enumerate(self.lines):
            if not line.role.prompt:
                line.promote(self.locks)
            elif line.pays(self.now, self.workers):
                self._dispatch(number)

    def _dispatch(self, number: int) -> None:
        line = self.lines[number]
        for _ in range(PASSES if line.role.prompt else 1):
            if not (tickets := line.claim(self.locks, self.workers, self.now)):
                return
            self._publish(number, tickets)

    def _publish(self, number: int, tickets: Iterable[list[SimulatedTask]]) -> None:
        for ticket in tickets:
            self._queues.put(self.lines[number].role.queue, (number, ticket))

    def _in(self, seconds: float, event: _Event, number: int = 0, ticket: list[SimulatedTask] | None = None) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), event, number, ticket or []))
