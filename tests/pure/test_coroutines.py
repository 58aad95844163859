"""`async def` handlers where they are declared and called; what yields is refused there."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from celeriac import Celeriac, ConfigurationError, Settings, Task


@pytest.fixture
def app() -> Celeriac:
    nowhere = Settings(database_url="postgresql://nowhere.invalid/", redis_url="redis://nowhere.invalid/")
    return Celeriac("shop", settings=nowhere, set_as_current=False)


def rows(n: int) -> Iterator[int]:
    yield n


async def pages(n: int) -> AsyncIterator[int]:
    yield n


@pytest.mark.parametrize("handler", [rows, pages])
def test_a_handler_that_yields_is_refused_where_it_is_declared(app: Celeriac, handler: Any) -> None:
    with pytest.raises(ConfigurationError, match="role 'build': the handler yields, and nobody would take"):
        app.task(role="build", shared=False, lazy=False)(handler)


def test_a_class_whose_run_yields_is_refused(app: Celeriac) -> None:
    class Build(Task):  # type: ignore[type-arg]
        name = "build"

        def run(self, n: int) -> Iterator[int]:
            yield n

    with pytest.raises(ConfigurationError, match="role 'build': the handler yields"):
        app.register_task(Build)


@pytest.fixture
def double(app: Celeriac) -> Any:
    @app.task(role="double", shared=False, bind=True)
    async def double(self: Any, n: int) -> int:
        await asyncio.sleep(0)
        assert self.request.called_directly is (self.request.id is None)
        return 2 * n

    return double


def test_a_call_of_the_task_returns_what_the_handler_does(double: Any) -> None:
    assert double(2) == 4
    assert double.apply((3,)).get() == 6


def test_in_a_coroutine_the_call_is_awaited_and_an_eager_task_has_run(double: Any) -> None:
    async def caller() -> tuple[int, int]:
        return await double(2), double.apply((3,)).get()

    assert asyncio.run(caller()) == (4, 6)


def test_the_role_has_the_handlers_parameters(app: Celeriac, double: Any) -> None:
    declared = app.roles.get("double")
    assert declared is not None
    assert declared.signature.names == ["n"]
    assert list(inspect.signature(double.run).parameters) == ["n"]


# -- without a row -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["directly", "eagerly"])
def test_who_is_called_without_a_row_tells_no_database_of_its_state(app: Celeriac, how: str) -> None:
    @app.task(role="telling", shared=False, bind=True)
    def telling(self: Any, n: int) -> int:
        self.update_state(state="PROGRESS", meta={"n": n})
        if how == "eagerly":
            self.app.backend.store_result(self.request.id, None, "SENT")
        return n

    assert (telling(7) if how == "directly" else telling.apply((7,)).get()) == 7


@pytest.mark.parametrize("how", ["directly", "eagerly"])
def test_a_coroutine_that_cancels_itself_does_not_cancel_its_caller(app: Celeriac, how: str) -> None:
    @app.task(role="cancelling", shared=False)
    async def cancelling() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="the handler's coroutine was cancelled, and not by the worker"):
        cancelling() if how == "directly" else cancelling.apply(throw=True)
