"""One stack a module: starting workers takes seconds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

import sandbox
from tasks.app import app
from tests.conftest import Servers
from tests.systems.crawls import ENVIRON, Crawls
from tests.systems.sites import SWITCHED_ON, Sites
from tests.systems.stack import Stack, on_servers
from tests.systems.works import FOLLOW_UPS, Works

_number = itertools.count(1)


@pytest.fixture(scope="module")
def new_database(servers: Servers, template: str) -> Iterator[Callable[[], str]]:
    """Makes migrated databases that go with the module."""
    with ExitStack() as made:
        yield lambda: made.enter_context(servers.cloned(template))


@pytest.fixture(scope="module")
def stack(
    servers: Servers, new_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The sandbox, and processes to come, on a database of the module's."""
    redis.Redis.from_url(servers.redis_url).flushdb()
    logs: Path = tmp_path_factory.mktemp("logs")
    with sandbox.start() as outside, Stack(new_database(), servers.redis_url, outside, logs) as stack:
        yield stack


@pytest.fixture
def no_faults(stack: Stack) -> Iterator[None]:
    """What a test had fail, or hang, does so no longer after it."""
    yield
    stack.outside.faults.reset()
    stack.outside.release()


@pytest.fixture(scope="module")
def sites(stack: Stack) -> Iterator[Sites]:
    """With everything switched on that makes thumbnails."""
    stack.environ |= SWITCHED_ON
    with on_servers(app, stack.environ):
        app.register_roles()
        yield Sites(stack)


@pytest.fixture(scope="module")
def works(stack: Stack) -> Iterator[Works]:
    """With a beat, and a worker of what follows a build."""
    with on_servers(app, stack.environ):
        stack.beat()
        stack.worker(*FOLLOW_UPS)
        yield Works(stack)


@pytest.fixture(scope="module")
def crawls(stack: Stack) -> Iterator[Crawls]:
    """With a beat."""
    with on_servers(app, stack.environ):
        crawls = Crawls(stack)
        stack.beat(**ENVIRON)
        yield crawls


@pytest.fixture
def as_new(crawls: Crawls, no_faults: None) -> Iterator[None]:
    """Reddit lets everything through again, and nothing is paused."""
    crawls.new_window()
    yield
    crawls.paused(False)


@pytest.fixture
def name(crawls: Crawls) -> str:
    """A subreddit of 30 posts that nobody has crawled."""
    display_name = f"Test_{next(_number)}"
    crawls.reddit.forum.open(display_name)
    return display_name.lower()
