"""A closed app is gone: neither a hook nor a thread keeps it, its connections or its tasks alive."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from celery import chain, signals
from celery.contrib.abortable import AbortableTask

from celeriac import Celeriac, Settings, testing
from celeriac.roles.declare import Roles
from tests.databases import running
from tests.processes import until

APPS = 20

#: The threads that watch what runs in a process, whatever its app: they stay.
WATCH = {"celeriac_look_at", "celeriac_limit"}


@pytest.fixture(autouse=True)
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of its tasks: what other tests' modules connect may fail, and the log's record keeps the frames."""
    for signal in (signals.task_prerun, signals.task_postrun, signals.task_success, signals.task_failure,
                   signals.task_retry):  # fmt: skip
        monkeypatch.setattr(signal, "receivers", [])


def made(database_url: str, redis_url: str, use: Callable[[Celeriac, Any], object]) -> weakref.ref[Celeriac]:
    """An app that has declared a task, was used, and was closed."""
    app = Celeriac("short", settings=Settings.from_environ({"DATABASE_URL": database_url, "REDIS_URL": redis_url}))

    @app.task(role="work", shared=False)
    def work(n: int = 0) -> int:
        return n

    app.register_roles()
    use(app, work)
    assert isinstance(app.roles, Roles)
    app.close()
    return weakref.ref(app)


def until_ended(before: set[Thread]) -> None:
    """Until there are no other threads than before: one that is told to end is not waited for."""
    until(lambda: {thread.name for thread in running() - before} <= WATCH, "their threads to end")


def test_of_many_closed_apps_none_stays_alive(database_url: str, redis_url: str) -> None:
    before = running()
    apps = [made(database_url, redis_url, lambda _, work: work.delay()) for _ in range(APPS)]
    gc.collect()
    assert sum(app() is not None for app in apps) == 0
    until_ended(before)


def drained(app: Celeriac, *calls: Callable[[], object]) -> None:
    for call in calls:
        call()
    testing.drain(app=app, with_retries=True)


def inline(app: Celeriac, work: Any) -> None:
    with testing.mode("inline", app=app):
        work.delay()
        with testing.mode("worker", app=app):
            work.delay()


def traced(app: Celeriac, _: Any) -> None:
    """Tasks that Celery's tracer runs, and one on a loop."""

    class Noted(app.Task):  # type: ignore[misc, name-defined]
        abstract = True

        def on_success(self, *_: Any) -> None: ...

    @app.task(role="noted", base=Noted, bind=True, shared=False, autoretry_for=(ValueError,), retry_backoff=0)
    def noted(self: Any) -> None:
        self.session.connection()
        if not self.request.retries:
            raise ValueError("once more")

    class Abortable(AbortableTask):  # type: ignore[misc]
        """Its results are of a class that the app has made for itself."""

        abstract = True

        def AsyncResult(self, task_id: str) -> Any:  # noqa: N802
            return self.app.AsyncResult(task_id)

    @app.task(role="awaited", base=Abortable, shared=False)
    async def awaited() -> None:
        await asyncio.sleep(0)

    app.register_roles()
    drained(app, noted.delay, awaited.delay)


USES: dict[str, Callable[[Celeriac, Any], object]] = {
    "nothing": lambda _, __: None,
    "bulk": lambda _, work: work.bulk([(1,), (2,)]),
    "chain": lambda _, work: chain(work.s(), work.s()).delay(),
    "eagerly": lambda _, work: work.apply((1,)).get(),
    "awaited": lambda _, work: asyncio.run(work.adelay()),
    "control": lambda app, _: app.control.inspect(timeout=0.05).ping(),
    "twice": lambda app, _: app.close(),
    "again": lambda app, work: (app.close(), work.delay()),
    "drained": lambda app, work: drained(app, work.delay, chain(work.s(), work.s()).delay),
    "traced": traced,
    "inline": inline,
    "run once": lambda _, work: testing.run(work, 1),
    "in a block": lambda app, _: app.__enter__().__exit__(None, None, None),
}


@pytest.mark.parametrize("use", USES)
def test_however_it_was_used(database_url: str, redis_url: str, use: str) -> None:
    before = running()
    apps = [made(database_url, redis_url, USES[use]) for _ in range(3)]
    gc.collect()
    assert [app() for app in apps] == [None] * 3
    until_ended(before)
