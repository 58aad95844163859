"""Queued tickets: those in Redis, and the few that a worker prefetched for its processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Queues(Generic[T]):
    """A worker's queues, polled in turn as in Kombu: a queue that was served goes to the end.

    `held`: prefetched tickets in their order, one for each process, as in Celery.
    """

    def __init__(self, names: Iterable[str], held: int) -> None:
        self._queues: dict[str, deque[T]] = {name: deque() for name in names}
        self._turns = list(self._queues)
        self._held: deque[T] = deque()
        self._most = held

    def put(self, name: str, ticket: T) -> None:
        self._queues[name].append(ticket)
        self._fetch()

    def take(self) -> T | None:
        """Return the next ticket for a free process."""
        if not self._held:
            return None
        ticket = self._held.popleft()
        self._fetch()
        return ticket

    def _fetch(self) -> None:
        while len(self._held) < self._most:
            served = next((name for name in self._turns if self._queues[name]), None)
            if served is None:
                return
            self._held.append(self._queues[served].popleft())
            self._turns.remove(served)
            self._turns.append(served)
