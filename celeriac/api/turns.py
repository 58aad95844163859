"""Turns: limits on simultaneous requests, so that a slow token or endpoint does not block the others."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from fastapi import Request

from celeriac.api.problems import Problem

#: Maximum numbers of handlers that run at once, each with a thread and a pooled connection: in all, of one token, at
#: one endpoint, and of one token at one endpoint.
HANDLERS, OF_A_TOKEN, AT_AN_ENDPOINT, OF_ONE_THERE = 20, 10, 8, 6

#: Seconds that a request waits for its turn.
PATIENCE = 10.0


class RequestTurns:
    """Admits at most `most` requests at once for each key, first come, first served."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        self.most, self.patience = most, patience
        self._lines: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: Hashable, whose: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises Problem 503 when the patience ends."""
        line = self._lines.get(key)
        if line is None:  # the waiting requests keep it alive
            line = self._lines[key] = asyncio.Semaphore(self.most)
        try:
            async with asyncio.timeout(self.patience):
                await line.acquire()
        except TimeoutError:
            detail = f"{self.most} requests {whose} are being worked on, and none ends; try again soon"
            raise Problem(503, detail, kind="busy", headers={"Retry-After": "1"}) from None
        try:
            yield
        finally:
            line.release()


class TurnsOfAll:
    """Turns of all kinds. Their order makes sure that a waiting request holds only turns of its own token."""

    def __init__(self) -> None:
        self.of_one_there = RequestTurns(OF_ONE_THERE)
        self.tokens, self.endpoints = RequestTurns(OF_A_TOKEN), RequestTurns(AT_AN_ENDPOINT)

    @asynccontextmanager
    async def turn(self, token: str, endpoint: Hashable) -> AsyncIterator[None]:
        async with (
            self.of_one_there.turn((token, endpoint), "of this token at this endpoint"),
            self.tokens.turn(token, "of this token"),
            self.endpoints.turn(endpoint, "at this endpoint"),
        ):
            yield


async def in_turn(request: Request) -> AsyncIterator[None]:
    """Hold a turn while a handler runs in a thread; coroutines need none. The request's body is read before."""
    endpoint = request.scope["endpoint"]
    bearer = getattr(request.state, "bearer", None)
    if bearer is None or inspect.iscoroutinefunction(endpoint):
        yield
        return
    turns: TurnsOfAll = request.app.state.turns
    async with turns.turn(bearer.id, endpoint):
        yield
