"""A closed app is gone: neither a hook nor a thread keeps it, its connections or its tasks alive."""

from __future__ import annotations

import gc
import threading
import weakref

from celeriac import Celeriac, Settings
from celeriac.roles.declare import Roles

APPS = 20


def made(database_url: str, redis_url: str) -> weakref.ref[Celeriac]:
    """An app that has declared a task, called it, and was closed."""
    app = Celeriac("short", settings=Settings.from_environ({"DATABASE_URL": database_url, "REDIS_URL": redis_url}))

    @app.task(role="work", shared=False)
    def work() -> None: ...

    app.register_roles()
    work.delay()
    assert isinstance(app.roles, Roles)
    app.close()
    return weakref.ref(app)


def test_of_many_closed_apps_none_stays_alive(database_url: str, redis_url: str) -> None:
    before = threading.active_count()
    apps = [made(database_url, redis_url) for _ in range(APPS)]
    gc.collect()
    assert sum(app() is not None for app in apps) == 0
    assert threading.active_count() == before
