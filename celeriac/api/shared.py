"""One reading for all simultaneous requests for the same facts: a hundred dashboards cost Postgres as much as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi.routing import APIRoute
from starlette.types import Message, Receive, Scope, Send

from celeriac.api.paths import asked_path

T = TypeVar("T")


class JoinedReading(Generic[T]):
    """Shares readings. No request gets a reading that began before it; requests during a reading share the next."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._next: asyncio.Future[T] | None = None

    async def __call__(self, read: Callable[[], Awaitable[T]]) -> T:
        if self._next is None:
            self._next = asyncio.ensure_future(self._in_turn(read))
        return await asyncio.shield(self._next)

    async def _in_turn(self, read: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            self._next = None
            return await read()


class JoinedReadingBy(Generic[T]):
    """Shares readings for each of many keys, such as roles."""

    def __init__(self) -> None:
        self._each: WeakValueDictionary[Hashable, JoinedReading[T]] = WeakValueDictionary()

    async def __call__(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        joined = self._each.get(key)
        if joined is None:  # the waiting requests keep it alive
            joined = self._each[key] = JoinedReading()
        return await joined(read)


class Shared(Generic[T]):
    """Shares the readings of `read`, those of each argument apart, in a few threads that are not the handlers'."""

    def __init__(self, read: Callable[..., T], threads: int = 2) -> None:
        self._read, self._threads, self._joined = read, CapacityLimiter(threads), JoinedReadingBy[T]()

    async def __call__(self, *key: Hashable) -> T:
        return await self._joined(key, partial(run_sync, self._read, *key, limiter=self._threads))


class SharedRoute(APIRoute):
    """A route whose handler runs once for all waiting requests of one token for the same address."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._answers = JoinedReadingBy[list[Message]]()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await super().handle(scope, receive, send)
            return
        address = scope["app"], scope["state"]["bearer"].id, asked_path(scope), scope["path"], scope["query_string"]
        for message in await self._answers(address, partial(self._answer, scope, receive)):
            await send({**message})

    async def _answer(self, scope: Scope, receive: Receive) -> list[Message]:
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        await super().handle(scope, receive, keep)
        return answer
