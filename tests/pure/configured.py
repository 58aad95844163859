"""The ways in which a user configures an app: each makes one that has been told so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from celeriac import Celeriac, Settings

REDIS = "redis://nowhere.invalid:6379/0"

Make = Callable[..., Celeriac]


def make(
    redis_url: str | None = REDIS, max_concurrent_tasks: float = 3, redis_master: str | None = None, **options: Any
) -> Celeriac:
    settings = Settings(
        database_url="postgresql://nowhere.invalid/",
        redis_url=redis_url,
        redis_master=redis_master,
        max_concurrent_tasks=max_concurrent_tasks,
    )
    return Celeriac("shop", settings=settings, set_as_current=False, **options)


def by_constructor(make: Make, **given: Any) -> Celeriac:
    return make(**given)


def by_object(make: Make, **given: Any) -> Celeriac:
    app = make()
    app.config_from_object(SimpleNamespace(**given))
    return app


def by_namespace(make: Make, **given: Any) -> Celeriac:
    """As Django's users do."""
    app = make()
    app.config_from_object(SimpleNamespace(**{f"CELERY_{k.upper()}": v for k, v in given.items()}), namespace="CELERY")
    return app


def by_update(make: Make, **given: Any) -> Celeriac:
    app = make()
    app.conf.update(given)
    return app


def read_again(make: Make, **given: Any) -> Celeriac:
    app = make()
    assert app.conf.worker_prefetch_multiplier == 1
    app.config_from_object(SimpleNamespace(**given))
    return app


def by_defaults(make: Make, **given: Any) -> Celeriac:
    app = make()
    app.add_defaults(given)
    return app


WAYS = [by_constructor, by_object, by_namespace, by_update, read_again, by_defaults]
