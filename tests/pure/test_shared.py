"""A shared reading: few for many who ask at once, and never one that began before somebody asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from celeriac.api.shared import Shared, SharedRoute
from celeriac.operate.tokens import Bearer


def test_many_who_ask_at_once_share_one_reading() -> None:
    read: list[int] = []

    async def ask() -> list[int]:
        shared = Shared(lambda: read.append(1) or len(read))
        return list(await asyncio.gather(*(shared() for _ in range(100))))

    assert asyncio.run(ask()) == [1] * 100


def test_who_comes_while_it_is_read_gets_the_next_reading() -> None:
    begun, go = threading.Event(), threading.Event()
    read: list[int] = []

    def slowly() -> int:
        read.append(1)
        begun.set()
        assert go.wait(30)
        return len(read)

    async def ask() -> tuple[int, list[int]]:
        shared = Shared(slowly)
        first = asyncio.ensure_future(shared())
        await asyncio.to_thread(begun.wait, 30)
        late = [asyncio.ensure_future(shared()) for _ in range(10)]
        await asyncio.sleep(0)
        go.set()
        return await first, list(await asyncio.gather(*late))

    assert asyncio.run(ask()) == (1, [2] * 10)


def test_what_goes_wrong_is_told_to_each_and_over_with_the_next() -> None:
    answers = iter([ZeroDivisionError, None])

    def read() -> int:
        if error := next(answers):
            raise error
        return 7

    async def ask() -> int:
        shared = Shared(read)
        told = await asyncio.gather(*(shared() for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in told] == [ZeroDivisionError] * 3
        return await shared()

    assert asyncio.run(ask()) == 7


def test_one_who_leaves_takes_the_reading_from_nobody() -> None:
    async def ask() -> int:
        shared = Shared(lambda: 7)
        leaving, staying = asyncio.ensure_future(shared()), asyncio.ensure_future(shared())
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return await staying

    assert asyncio.run(ask()) == 7


async def answers_of(app: FastAPI, asks: Sequence[tuple[str, str, str]]) -> list[httpx.Response]:
    """Of (token, method, path) asked for at once."""

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        token = dict(scope["headers"])[b"token"].decode()
        await app({**scope, "state": {"bearer": Bearer(token, token, frozenset())}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=known), base_url="http://api") as client:
        asked = (client.request(method, path, headers={"token": token}) for token, method, path in asks)
        return list(await asyncio.gather(*asked))


def test_what_a_token_asks_for_at_once_is_answered_once_by_address() -> None:
    read: list[str] = []
    router = APIRouter(route_class=SharedRoute)

    @router.get("/tasks")
    async def listed(role: str = "") -> dict[str, int]:
        read.append(role)
        await asyncio.sleep(0)
        return {"read": len(read)}

    @router.post("/tasks")
    async def made() -> None:
        read.append("made")

    app = FastAPI()
    app.include_router(router)
    same = asyncio.run(answers_of(app, [("a", "GET", "/tasks?role=x")] * 50))
    assert {answer.text for answer in same} == {'{"read":1}'}
    asyncio.run(answers_of(app, [("a", "GET", "/tasks?role=x"), ("b", "GET", "/tasks?role=x"), ("a", "GET", "/tasks")]))
    assert sorted(read) == ["", "x", "x", "x"], "another token and another address are read by themselves"
    asyncio.run(answers_of(app, [("a", "POST", "/tasks")] * 3))
    assert read.count("made") == 3


def test_what_is_wrong_is_told_to_each_who_asked() -> None:
    router = APIRouter(route_class=SharedRoute)

    @router.get("/tasks")
    async def listed(limit: int) -> None:
        raise AssertionError("no limit, no list")

    app = FastAPI()
    app.include_router(router)
    answers = asyncio.run(answers_of(app, [("a", "GET", "/tasks?limit=none")] * 5))
    assert [answer.status_code for answer in answers] == [422] * 5
