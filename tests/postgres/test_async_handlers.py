"""`async def` handlers run in any process, with everything a task has; what nobody awaited is no success."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import chain, signals

from celeriac import Celeriac
from celeriac.errors import LeaseLost, TaskCancelled
from celeriac.run.coroutines import Awaited
from tests.postgres.test_flights import flying
from tests.postgres.workflows import run_all, run_once
from tests.processes import Rows, until

ENDED = "SELECT status, error_message FROM worker_tasks"


@pytest.fixture(params=["called", "traced"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """By a direct call, and by Celery's tracer."""
    if request.param == "called":
        yield
        return

    def heard(**_: Any) -> None: ...

    signals.task_prerun.connect(heard)
    yield
    signals.task_prerun.disconnect(heard)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("ignore", [False, True])
def test_an_async_handler_runs_and_is_complete_only_then(app: Celeriac, rows: Rows, ignore: bool) -> None:
    ran: list[Any] = []

    @app.task(role="wait", shared=False, bind=True, ignore_result=ignore, prompt=False, chunk=500)
    async def wait(self: Any, n: int) -> int:
        before = self.request.id
        await asyncio.sleep(0.01)
        assert self.request.id == before
        ran.append(self.run_under_way.task.task_id)
        return n

    app.register_roles()
    ids = [wait.delay(n).id for n in range(3)]
    run_all(app)
    assert sorted(ran) == sorted(ids)
    assert rows(ENDED) == [("completed", None)] * 3
    if not ignore:
        assert sorted(row[0] for row in rows("SELECT result FROM worker_tasks")) == [0, 1, 2]


@pytest.mark.usefixtures("way")
def test_one_loop_serves_all_tasks_of_a_thread(app: Celeriac) -> None:
    loops: list[Any] = []

    @app.task(role="loop", shared=False, prompt=False, chunk=500)
    async def loop() -> None:
        loops.append(asyncio.get_running_loop())

    app.register_roles()
    for _ in range(3):
        loop.delay()
    run_all(app)
    assert len(loops) == 3
    assert len(set(loops)) == 1


@pytest.mark.usefixtures("way")
def test_retries_follow_ups_and_links_are_as_with_any_handler(app: Celeriac, rows: Rows) -> None:
    @app.task(role="end", shared=False, prompt=False, chunk=500)
    async def end(n: int) -> int:
        return n + 1

    @app.task(role="flaky", shared=False, bind=True, prompt=False, chunk=500, max_retries=3, autoretry_for=(KeyError,))
    async def flaky(self: Any) -> int:
        await asyncio.sleep(0)
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        if self.request.retries == 1:
            raise KeyError("tried again by its class")
        end.delay(10)
        return int(self.request.retries)

    app.register_roles()
    chain(flaky.s(), end.s()).delay()
    for _ in range(3):
        run_all(app)
        for (task_id,) in rows("SELECT task_id FROM worker_tasks WHERE waits_for = 'time'"):
            app.hasten(task_id)
    run_all(app)
    assert sorted(rows("SELECT role, result FROM worker_tasks")) == [("end", 3), ("end", 11), ("flaky", 2)]


def undecorated(handler: Any) -> Any:
    """As decorators do that know nothing of coroutines, and do not say what they wrap."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return handler(*args, **kwargs)

    call.__name__, call.__module__ = handler.__name__, handler.__module__
    return call


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("ignore", [False, True])
def test_a_coroutine_that_nobody_awaited_is_a_failure(app: Celeriac, rows: Rows, ignore: bool) -> None:
    @undecorated
    async def hidden() -> None: ...

    app.task(role="hidden", shared=False, prompt=False, chunk=500, ignore_result=ignore, max_retries=0)(hidden)

    def partial(n: int) -> Any:
        return (n for _ in range(3))

    app.task(role="partial", shared=False, prompt=False, chunk=500, ignore_result=ignore, max_retries=0)(partial)
    app.register_roles()
    app.tasks["hidden"].delay()
    app.tasks["partial"].delay(1)
    run_all(app)
    for status, error in rows(ENDED):
        assert status == "failed"
        assert "whose work nobody has done: declare the handler with `async def`" in error


def test_what_wraps_a_coroutine_and_says_so_runs(app: Celeriac, rows: Rows) -> None:
    def logged(handler: Any) -> Any:
        @functools.wraps(handler)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await handler(*args, **kwargs)

        return call

    @app.task(role="wrapped", shared=False, prompt=False, chunk=500)
    @logged
    async def wrapped(n: int) -> int:
        return n

    app.register_roles()
    wrapped.delay(7)
    run_all(app)
    assert rows("SELECT status, result FROM worker_tasks") == [("completed", 7)]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("error", "because", "status"),
    [(TaskCancelled("stop"), "cancelled", "cancelled"), (LeaseLost("gone"), "lease lost", "pending")],
)
def test_what_stops_a_coroutine_cancels_it_and_says_why(
    app: Celeriac, rows: Rows, error: BaseException, because: str, status: str
) -> None:
    seen: list[Any] = []

    @app.task(role="long", shared=False, bind=True, prompt=False, chunk=500)
    async def long(self: Any) -> None:
        run = self.run_under_way
        threading.Timer(0.05, lambda: Awaited.stop(run.awaited, run, error)).start()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(self.stopped_because)
            raise

    app.register_roles()
    long.delay()
    run_once(app)
    assert seen == [because]
    assert rows("SELECT status FROM worker_tasks") == [(status,)]


def test_a_coroutine_that_cancels_itself_has_failed(app: Celeriac, rows: Rows) -> None:
    @app.task(role="own", shared=False, prompt=False, chunk=500, max_retries=0)
    async def own() -> None:
        raise asyncio.CancelledError

    app.register_roles()
    own.delay()
    run_all(app)
    ((status, error),) = rows(ENDED)
    assert (status, error) == (
        "failed", "CancelledError: the handler's coroutine was cancelled, and not by the worker",
    )  # fmt: skip


def test_a_coroutine_that_cancels_itself_is_retried_where_its_role_says_so(app: Celeriac, rows: Rows) -> None:
    @app.task(role="own", shared=False, prompt=False, chunk=500, autoretry_for=(asyncio.CancelledError,))
    async def own() -> None:
        raise asyncio.CancelledError("its own")

    app.register_roles()
    own.delay()
    run_all(app)
    assert rows(ENDED) == [("pending", "CancelledError: its own")]


@pytest.mark.parametrize("way", ["taken", "shut"])
def test_threads_that_handlers_have_taken_or_shut_are_not_the_engines(app: Celeriac, rows: Rows, way: str) -> None:
    go_on = threading.Event()

    @app.task(role="work", shared=False, bind=True, timeout=30)
    async def work(self: Any) -> None:
        loop = asyncio.get_running_loop()
        taken = [loop.run_in_executor(None, go_on.wait, 20) for _ in range(64 if way == "taken" else 0)]
        if way == "shut":
            await loop.shutdown_default_executor()
        try:
            await asyncio.wait_for(self.progress("on the way"), 10)
            self.log.info("a line")
        finally:
            go_on.set()
            await asyncio.gather(*taken)

    app.register_roles()
    work.delay()
    with flying(app):
        until(lambda: rows.one("SELECT count(*) FROM history") == 1, "it to end")
    assert rows("SELECT status, progress FROM history") == [("completed", "on the way")]
