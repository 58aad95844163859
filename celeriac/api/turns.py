"""Turns: limit how many requests are worked on at once, so that a token or an endpoint that waits leaves space for
others.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from fastapi import Request

from celeriac.api.problems import Problem

#: Maximum numbers of handlers that run at once, each in a thread with a pooled connection: in all, of one token, at one
#: endpoint, and of one token at one endpoint.
HANDLERS, OF_A_TOKEN, AT_AN_ENDPOINT, OF_ONE_THERE = 20, 10, 8, 6

#: Seconds that a request waits for its turn.
PATIENCE = 10.0


class RequestTurns:
    """Admits at most so many requests at once for each key, first come, first served."""

    def __init__(self, most: int, patience: float = PATIENCE) -> None:
        self.most, self.patience = most, patience
        self._lines: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, key: Hashable, whose: str) -> AsyncIterator[None]:
        """Hold a turn. Raises Problem 503."""
        line = self._lines.get(key)
        if line is None:  # the waiting requests keep it
            line = self._lines[key] = asyncio.Semaphore(self.most)
        try:
            async with asyncio.timeout(self.patience):
                await line.acquire()
        except TimeoutError:
            raise _busy(self.most, whose) from None
        try:
            yield
        finally:
            line.release()


class TurnsOfAll:
    """Turns of all kinds, taken in this order, so that a waiting request holds only a turn of its own token."""

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
    """Take a turn for a handler that needs a thread; other handlers need none. The body is read before the turn is
    taken.
    """
    endpoint = request.scope["endpoint"]
    bearer = getattr(request.state, "bearer", None)
    if bearer is None or inspect.iscoroutinefunction(endpoint):
        yield
        return
    turns: TurnsOfAll = request.app.state.turns
    async with turns.turn(bearer.id, endpoint):
        yield


def _busy(most: int, whose: str) -> Problem:
    detail = f"{most} requests {whose} are being worked on, and none ends; try again soon"
    return Problem(503, detail, kind="busy", headers={"Retry-After": "1"})
