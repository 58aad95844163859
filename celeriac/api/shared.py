"""One reading for all who ask for the same at once: a hundred dashboards cost Postgres what one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from anyio.to_thread import run_sync

T = TypeVar("T")


class Shared(Generic[T]):
    """Nobody gets what was read before they asked: who comes while a reading is under way shares the next one."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._turn = asyncio.Lock()
        self._next: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.ensure_future(self._in_turn())
        return await asyncio.shield(self._next)

    async def _in_turn(self) -> T:
        async with self._turn:
            self._next = None
            return await run_sync(self._read)
