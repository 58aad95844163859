"""Redis decides nothing: while it is gone work goes on, by looks in SQL, and when it is back nothing runs twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from celery import Celery
from redis import Redis

from celeriac import local
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import Rows, until

ENQUEUE = "SELECT celeriac.enqueue('slow', '[0.05]') FROM generate_series(1, :n)"

Turn = Callable[[local.ValkeyServer], None]

COMPLETED = "SELECT count(*) FROM worker_tasks WHERE status = 'completed'"


@pytest.fixture
def server(tmp_path: Path) -> local.ValkeyServer:
    return local.ValkeyServer(tmp_path / "valkey")


def go(server: local.ValkeyServer) -> None:
    server.stop()


def come(server: local.ValkeyServer) -> None:
    server.start()


def freeze(server: local.ValkeyServer) -> None:
    server.pause()


def thaw(server: local.ValkeyServer) -> None:
    server.resume()


def fill(server: local.ValkeyServer) -> None:
    with Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)


def empty(server: local.ValkeyServer) -> None:
    with Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 0)


CASES = [
    *((pool, go, come) for pool in ("prefork", "solo", "threads", "gevent", "asyncio")),
    *((pool, *how) for pool in ("threads", "asyncio") for how in ((freeze, thaw), (fill, empty))),
    *(("prefork", *how) for how in ((freeze, thaw), (fill, empty))),
    ("solo", freeze, thaw),
]
BY_DAY = [("prefork", go, come), ("prefork", freeze, thaw), ("asyncio", fill, empty)]
BY_NIGHT = pytest.mark.nightly("ten seconds and more each; by day each outage meets one kind of slot, once")


@pytest.mark.parametrize(
    ("pool", "away", "back", "times"),
    [*((*case, 1) for case in BY_DAY), *(pytest.param(*case, 2, marks=BY_NIGHT) for case in CASES)],
)
def test_work_goes_on_and_nothing_runs_twice(
    database_url: str,
    rows: Rows,
    tmp_path: Path,
    server: local.ValkeyServer,
    pool: str,
    away: Turn,
    back: Turn,
    times: int,
) -> None:
    server.start()
    done = 0

    def work(n: int, when: str) -> None:
        nonlocal done
        rows(ENQUEUE, n=n)
        done += n
        until(lambda: rows.one(COMPLETED) == done, when)

    try:
        options = ("-P", pool, "-c", "4", "-Q", "slow")
        with processes.worker(
            "tests.end_to_end.shop", database_url, server.url, tmp_path / "log", *options, environ=QUICK
        ) as running:
            work(5, "work before")
            for _ in range(times):
                away(server)
                work(20, "work without Redis")
                work(1, "a lone task without Redis")
                back(server)
                work(20, "work with Redis back")
            assert running.process.poll() is None
            with Celery(broker=server.url, set_as_current=False) as other:
                until(lambda: other.control.inspect(timeout=2).ping(), "the worker to be heard again")
    finally:
        server.stop()
    assert rows("SELECT what, count(*) FROM ran GROUP BY what ORDER BY what") == [("begin", done), ("end", done)]
    assert rows.one("SELECT sum(losses) FROM worker_tasks") == 0
