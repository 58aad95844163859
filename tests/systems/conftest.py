"""One stack a module: starting workers takes seconds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

import sandbox
from tests.conftest import Servers
from tests.systems.stack import Stack

_number = itertools.count()


@pytest.fixture(scope="module")
def new_database(servers: Servers, template: str) -> Iterator[Callable[[], str]]:
    """Makes migrated databases that go with the module."""
    made: list[str] = []

    def make() -> str:
        made.append(f"celeriac_system_{os.getpid()}_{next(_number)}")
        servers.execute(f"CREATE DATABASE {made[-1]} TEMPLATE {template}")
        return servers.database(made[-1])

    yield make
    for name in made:
        servers.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def stack(
    servers: Servers, new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The sandbox, and processes to come, on a database of the module's."""
    redis.Redis.from_url(servers.redis_url).flushdb()
    logs: Path = tmp_path_factory.mktemp("logs")
    with sandbox.start() as outside, Stack(new_database(), servers.redis_url, outside, logs) as stack:
        yield stack
