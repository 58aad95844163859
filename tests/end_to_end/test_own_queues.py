"""Workers of a role with several queues: each takes what its own queues hold, whatever runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from celeriac import Settings
from tests.end_to_end.conftest import QUICK
from tests.processes import Rows, Running, until

Worker = Callable[..., Running]

MODULE = "tests.end_to_end.lined"

BY_NIGHT = pytest.mark.nightly("with gevent each worker is a Python of its own; by day it has the tests of pools")


@pytest.fixture
def lined(database_url: str, redis_url: str, rows: Rows) -> Iterator[ModuleType]:
    """The module, its app on this test's servers."""
    module = importlib.import_module(MODULE)
    for name in ("database", "publisher", "enqueuer", "by_name", "limited", "tally"):
        module.app.__dict__.pop(name, None)
    module.app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
    module.app.conf.broker_url = redis_url
    module.app.register_roles()
    yield module
    module.app.publisher.close()
    module.app.database.dispose()


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads", "asyncio", pytest.param("gevent", marks=BY_NIGHT)])
def test_a_worker_takes_what_waits_in_its_queues_alone(
    lined: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    worker("-P", pool, "-c", "2", "-Q", "lined-slow", module=MODULE)
    first = lined.lined.delay()
    slow = [lined.lined.apply_async(queue="lined-slow") for _ in range(3)]
    assert {result.get(timeout=60) for result in slow} == {"lined-slow"}
    assert rows("SELECT queue, status FROM worker_tasks WHERE task_id = :id", id=first.id) == [(None, "pending")]

    lined.app.control.add_consumer("lined")
    assert first.get(timeout=60) == "lined"
    assert lined.lined.delay("lined-slow").get(timeout=60) == "lined-slow"
    assert lined.lined.apply_async(("lined",), queue="lined-slow").get(timeout=60) == "lined"

    lined.app.control.cancel_consumer("lined-slow")
    until(lambda: rows("SELECT queues FROM celeriac.workers") == [(["lined"],)], "the worker to leave the queue")
    left = lined.lined.apply_async(queue="lined-slow")
    assert lined.lined.delay().get(timeout=60) == "lined"
    assert rows("SELECT queue, status FROM worker_tasks WHERE task_id = :id", id=left.id) == [("lined-slow", "pending")]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_without_redis_a_worker_finds_what_waits_in_its_queues(
    lined: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    worker("-P", pool, "-c", "1", "-Q", "lined-slow", module=MODULE, REDIS_URL="none")
    first, slow = lined.lined.delay(), lined.lined.apply_async(queue="lined-slow")
    assert slow.get(timeout=60) == "lined-slow"
    assert rows("SELECT status FROM worker_tasks WHERE task_id = :id", id=first.id) == [("pending",)]
