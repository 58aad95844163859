"""One reading for all who ask for the same at once: a hundred dashboards cost Postgres what one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

K = TypeVar("K")
T = TypeVar("T")


class Shared(Generic[T]):
    """Nobody gets what was read before they asked: who comes while a reading is under way shares the next one.

    `threads`: those that read, which are not the handlers'.
    """

    def __init__(self, read: Callable[[], T], threads: CapacityLimiter | None = None) -> None:
        self._read = read
        self._threads = threads or CapacityLimiter(1)
        self._turn = asyncio.Lock()
        self._next: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.ensure_future(self._in_turn())
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> T:
        async with self._turn:
            self._next = None
            return await run_sync(self._read, limiter=self._threads)


class SharedBy(Generic[K, T]):
    """The same for each of many: of every role, say, or of one."""

    def __init__(self, read: Callable[[K], T], threads: int = 2) -> None:
        self._read = read
        self._threads = CapacityLimiter(threads)
        self._each: WeakValueDictionary[K, Shared[T]] = WeakValueDictionary()

    async def __call__(self, key: K) -> T:
        shared = self._each.get(key)
        if shared is None:  # whoever asks for it keeps it
            shared = self._each[key] = Shared(partial(self._read, key), self._threads)
        return await shared()
