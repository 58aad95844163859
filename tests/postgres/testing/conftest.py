"""A shop's app as its own tests have it: current, in a mode of `celeriac.testing`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import _state
from celery.result import allow_join_result
from sqlalchemy import text

from celeriac import Celeriac, testing


@pytest.fixture
def app(app: Celeriac) -> Iterator[Celeriac]:
    """Current, and it shares no tasks with the apps of other tests; some of those leave Celery a worker's flag."""
    before, shared_tasks = _state.get_current_app(), _state._on_app_finalizers
    _state._on_app_finalizers = {task for task in shared_tasks if task.__module__ == "celery.app.builtins"}
    app.set_current()
    with testing.mode("manual"), allow_join_result():
        yield app
    before.set_current()
    _state._on_app_finalizers = shared_tasks


@pytest.fixture
def shop(app: Celeriac) -> dict[str, Any]:
    """Its tasks, and what they did."""
    ran: list[Any] = []

    @app.task(role="sync", fair_by="client", lock_by="shop:{store}", max_retries=2)
    def sync(store: int, client: str = "acme") -> int:
        ran.append(("sync", store))
        return store * 2

    @app.task(role="flaky", bind=True, autoretry_for=(ConnectionError,), retry_backoff=60, max_retries=2)
    def flaky(self: Any, fails: int) -> str:
        ran.append(("flaky", self.request.retries))
        if self.request.retries < fails:
            raise ConnectionError("no answer")
        return "done"

    @app.task(role="parent", bind=True)
    def parent(self: Any, n: int) -> None:
        self.session.execute(text("CREATE TABLE IF NOT EXISTS seen (n integer)"))
        self.session.execute(text("INSERT INTO seen VALUES (:n)"), {"n": n})
        sync.delay(n)

    @app.task
    def add(x: int, y: int = 0, *more: int, **named: int) -> int:
        return x + y

    @app.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task
    def broken() -> None:
        raise ValueError("on purpose")

    app.register_roles()
    return {"ran": ran} | {t.__name__: t for t in (sync, flaky, parent, add, total, broken)}
