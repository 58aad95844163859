"""Whatever tasks leave in their worker's process, for which Python would wait, the worker ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from celeriac import Celeriac
from tests.end_to_end import leaving
from tests.end_to_end.conftest import beside
from tests.processes import EXECUTED, Rows, Running

BY_NIGHT = pytest.mark.nightly("a worker more, whose process Python ends as it ends that of threads")
POOLS = ("threads", "prefork", "solo", "asyncio", "gevent")

#: What is left in which pool: a process of a prefork pool is a daemon, which may have no processes of its own.
LEFT = [
    pytest.param(pool, way, marks=() if pool == "threads" else BY_NIGHT)
    for pool in POOLS for way in leaving.WAYS if (pool, way) != ("prefork", "process")
]  # fmt: skip


@pytest.fixture
def app(shop: ModuleType) -> Iterator[Celeriac]:
    """The tasks' app on this test's servers."""
    with beside(shop, leaving.app) as app:
        yield app


@pytest.mark.parametrize(("pool", "way"), LEFT)
@pytest.mark.usefixtures("app")
def test_a_worker_ends_whatever_its_tasks_have_left(
    worker: Callable[..., Running], rows: Rows, pool: str, way: str
) -> None:
    given = ("-P", pool, "-c", "1", "-Q", "leaves")
    running = worker(*given, module="tests.end_to_end.leaving", **{EXECUTED: "1"})
    leaving.leaves.delay(way).get(timeout=30)
    began = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - began < 15
    assert rows("SELECT status FROM workers") == [("stopped",)]
    if pool in ("threads", "solo", "asyncio") and way != "thread":  # a thread that a daemon starts is one
        assert "keeps its process" in running.printed()
