"""What Celery calls as a function may be `async def` where it runs; elsewhere it is refused or named, never dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from celery import signals
from pydantic import BaseModel

from celeriac import Celeriac, ConfigurationError
from tests.postgres.test_flights import flying
from tests.postgres.workflows import run_all
from tests.processes import Rows, until

HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")


def in_slots(app: Celeriac, rows: Rows) -> None:
    with flying(app):
        until(lambda: rows("SELECT FROM worker_tasks WHERE completed_at IS NOT NULL OR waits_for = 'time'"), "its end")


def in_a_process(app: Celeriac, _: Rows) -> None:
    run_all(app)


WAYS = pytest.mark.parametrize("run", [in_slots, in_a_process])


class Way(BaseModel):
    name: str


@pytest.fixture
def hooked(app: Celeriac) -> list[tuple[str, str]]:
    """The hooks that have run to their end, with the id of their task."""
    called: list[tuple[str, str]] = []

    def hook(name: str) -> Callable[..., Any]:
        async def call(self: Any, *_: Any) -> None:
            before = self.request.id
            await asyncio.sleep(0)
            assert self.request.id == before
            called.append((name, before))

        return call

    base = type("Hooked", (app.Task,), {"abstract": True} | {name: hook(name) for name in HOOKS})

    @app.task(role="work", base=base, shared=False, bind=True, chunk=500, max_retries=1)
    async def work(self: Any, way: str) -> None:
        if way == "retry":
            raise self.retry(countdown=600)
        if way == "fail":
            raise ValueError("on purpose")

    app.register_roles()
    return called


@WAYS
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("end", ["before_start", "on_success", "after_return"]),
        ("fail", ["before_start", "on_failure", "after_return"]),
        ("retry", ["before_start", "on_retry"]),
    ],
)
def test_hooks_that_are_coroutines_run(
    app: Celeriac, rows: Rows, hooked: list[tuple[str, str]], run: Callable[..., None], way: str, expected: list[str]
) -> None:
    called = app.tasks["work"].delay(way)
    run(app, rows)
    until(lambda: len(hooked) >= len(expected), "the hooks")
    assert hooked == [(name, called.id) for name in expected]


def test_what_such_a_hook_raises_is_what_it_would_be_of_any(app: Celeriac, rows: Rows) -> None:
    class Refusing(app.Task):  # type: ignore[misc, name-defined]
        abstract = True

        async def before_start(self, *_: Any) -> None:
            raise ValueError("not today")

    @app.task(role="work", base=Refusing, shared=False, prompt=False, max_retries=0)
    def work() -> None: ...

    app.register_roles()
    work.delay()
    run_all(app)
    assert rows("SELECT status, error_message FROM worker_tasks") == [("failed", "ValueError: not today")]


def test_such_a_hook_that_does_not_end_is_stopped_at_the_time_limit(app: Celeriac, rows: Rows) -> None:
    class Waiting(app.Task):  # type: ignore[misc, name-defined]
        abstract = True

        async def before_start(self, *_: Any) -> None:
            await asyncio.sleep(60)

    @app.task(role="work", base=Waiting, shared=False, max_retries=0, timeout=0.2)
    async def work() -> None: ...

    app.register_roles()
    work.delay()
    with flying(app):
        until(lambda: rows.one("SELECT count(*) FROM history") == 1, "it to be stopped")
    assert rows("SELECT error_message FROM history") == [("SoftTimeLimitExceeded: SoftTimeLimitExceeded(0.2,)",)]


def test_a_call_that_is_a_coroutine_is_refused_where_it_is_declared(app: Celeriac) -> None:
    class Calling(app.Task):  # type: ignore[misc, name-defined]
        abstract = True

        async def __call__(self, *args: Any) -> Any:
            return self.run(*args)

    with pytest.raises(ConfigurationError, match=r"`__call__` of .* is `async def`, and Celery calls it as a function"):

        @app.task(role="work", base=Calling, shared=False, lazy=False)
        async def work() -> None: ...


async def key(_: Any) -> str:
    return "one"


@pytest.mark.parametrize("option", ["fair_by", "lock_by", "unique_by"])
def test_a_key_that_is_a_coroutine_is_refused_where_it_is_declared(app: Celeriac, option: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{option}=.*give the name of a parameter"):

        @app.task(role="work", shared=False, lazy=False, **{option: key})
        def work(n: int) -> None: ...


async def heard(**_: Any) -> None: ...


def test_a_receiver_that_is_a_coroutine_is_named(app: Celeriac) -> None:
    line = f"{__name__}.heard is `async def` and never runs: Celery calls receivers of the signal "
    assert [note for note in app.notes() if "async def" in note] == []
    signals.task_prerun.connect(heard)
    app.on_after_finalize.connect(heard)
    try:
        named = [note for note in app.notes() if note.startswith(line)]
    finally:
        signals.task_prerun.disconnect(heard)
        app.on_after_finalize.disconnect(heard)
    assert [note.removeprefix(line).split(" ")[0] for note in named] == ["task_prerun", "app.on_after_finalize"]


@WAYS
def test_a_coroutine_takes_and_returns_models(app: Celeriac, rows: Rows, run: Callable[..., None]) -> None:
    @app.task(role="work", shared=False, pydantic=True, chunk=500, autoretry_for=(KeyError,))
    async def work(way: Way) -> Way:
        await asyncio.sleep(0)
        return Way(name=f"{way.name} again")

    app.register_roles()
    work.delay(Way(name="one"))
    run(app, rows)
    assert rows("SELECT status, result FROM worker_tasks") == [("completed", {"name": "one again"})]
