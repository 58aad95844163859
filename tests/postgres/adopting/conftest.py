"""A worker's adopter, and the Redis from which it takes what plain apps sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celeriac import Celeriac
from celeriac.worker.adopter import Adopter
from tests.processes import Rows

Adopters = Callable[..., Adopter]


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url)
    yield client
    client.close()


@pytest.fixture
def adopters(app: Celeriac) -> Adopters:
    """`adopters("plus")`: a worker's adopter of the app that consumes these queues."""

    @app.task(role="plus", adopt=True, prompt=False, shared=False, keep=None)
    def plus(a: int, b: int = 1) -> int:
        return a + b

    @app.task(role="one", adopt=True, prompt=False, shared=False, unique_by="n")
    def one(n: int) -> None: ...

    @app.task(role="shy", prompt=False, shared=False)
    def shy() -> None: ...

    app.register_roles()
    return lambda *queues: Adopter(app, lambda: set(queues))


def left(client: redis.Redis) -> list[str]:
    """The keys that hold messages or tickets."""
    return sorted(key.decode() for key in client.keys("*") if not key.startswith((b"_kombu", b"celeriac:kick")))


def tasks(rows: Rows) -> list[tuple[Any, ...]]:
    return rows("SELECT task_id, role, kwargs FROM celeriac.tasks ORDER BY id")
