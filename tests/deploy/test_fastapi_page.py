"""The application of the page about FastAPI and Starlette takes orders and tells how they go, as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from celery import _state

from celeriac.errors import NotReady
from tests.deploy.test_blocks import ran
from tests.deploy.written import of
from tests.postgres.workflows import run_all
from tests.processes import Rows

BLOCKS = of("docs/fastapi.md", "python")


@pytest.fixture
def page(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setattr(_state, "_on_app_finalizers", set(_state._on_app_finalizers))
    before = _state.get_current_app()
    names = ran("", BLOCKS)
    names["app"].register_roles()
    yield names
    before.set_current()


async def _order(page: dict[str, Any], api: Any) -> tuple[list[Any], str]:
    """Two orders, and what is streamed of them while a worker runs."""
    transport = httpx.ASGITransport(api, raise_app_exceptions=False)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        orders = [await client.post("/stores/7/report") for _ in range(2)]
        stream = asyncio.ensure_future(client.get(f"/reports/{orders[0].json()['id']}"))
        await asyncio.to_thread(run_all, page["app"])
        told = await asyncio.wait_for(stream, 20)
        page["app"].enqueuer.insert = _refuse
        orders.append(await client.post("/stores/8/report"))
        return orders, told.text


def _refuse(*_: Any) -> None:
    raise NotReady("Postgres cannot be reached; nothing was enqueued")


@pytest.mark.parametrize("name", ["api", "starlette"])
def test_an_order_is_taken_and_followed_to_its_end(page: dict[str, Any], rows: Rows, name: str) -> None:
    (first, again, refused), told = asyncio.run(_order(page, page[name]))
    assert (first.status_code, first.json()["is_new"]) == (202, True)
    assert again.json() == {"id": first.json()["id"], "is_new": False}
    assert told.split("\n\n")[-3:-1] == ['data: {"percent": 100}', 'event: SUCCESS\ndata: {"store": 7}']
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert rows("SELECT status FROM worker_tasks") == [("completed",)]
