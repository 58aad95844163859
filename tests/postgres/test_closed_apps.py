"""A closed app is gone: neither a hook nor a thread keeps it, its connections or its tasks alive."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from celery import chain

from celeriac import Celeriac, Settings
from celeriac.roles.declare import Roles
from tests.databases import running

APPS = 20


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


def test_of_many_closed_apps_none_stays_alive(database_url: str, redis_url: str) -> None:
    before = running()
    apps = [made(database_url, redis_url, lambda _, work: work.delay()) for _ in range(APPS)]
    gc.collect()
    assert sum(app() is not None for app in apps) == 0
    assert running() <= before


USES: dict[str, Callable[[Celeriac, Any], object]] = {
    "nothing": lambda _, __: None,
    "bulk": lambda _, work: work.bulk([(1,), (2,)]),
    "chain": lambda _, work: chain(work.s(), work.s()).delay(),
    "eagerly": lambda _, work: work.apply((1,)).get(),
    "awaited": lambda _, work: asyncio.run(work.adelay()),
    "control": lambda app, _: app.control.inspect(timeout=0.05).ping(),
    "twice": lambda app, _: app.close(),
    "again": lambda app, work: (app.close(), work.delay()),
    "in a block": lambda app, _: app.__enter__().__exit__(None, None, None),
}


@pytest.mark.parametrize("use", USES)
def test_however_it_was_used(database_url: str, redis_url: str, use: str) -> None:
    before = running()
    apps = [made(database_url, redis_url, USES[use]) for _ in range(3)]
    gc.collect()
    assert [app() for app in apps] == [None] * 3
    assert [thread.name for thread in running() - before] == []
