"""With Redis down or hung an enqueue is as good as without; what was enqueued runs when Redis is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from celeriac import Celeriac, Settings, local
from tests import processes
from tests.end_to_end.conftest import QUICK, declare_shop
from tests.processes import Rows, until


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[local.ValkeyServer]:
    server = local.ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server
    server.resume()
    server.stop()


@pytest.fixture
def enqueuer(valkey: local.ValkeyServer, database_url: str, rows: Rows) -> Iterator[Celeriac]:
    """Knows the shop's tasks by name only."""
    app = Celeriac("other", settings=Settings(database_url=database_url, redis_url=valkey.url), set_as_current=False)
    declare_shop(app)
    yield app
    app.publisher.close()
    app.database.dispose()


def seconds(app: Celeriac) -> float:
    began = time.perf_counter()
    app.send_task("add", kwargs={"a": 1, "b": 2})
    return time.perf_counter() - began


@pytest.mark.parametrize("fault", ["down", "hung"])
def test_an_enqueue_needs_no_redis(
    fault: str, enqueuer: Celeriac, valkey: local.ValkeyServer, rows: Rows, database_url: str, tmp_path: Path
) -> None:
    seconds(enqueuer)
    healthy = median(seconds(enqueuer) for _ in range(20))
    valkey.stop() if fault == "down" else valkey.pause()
    first = seconds(enqueuer)
    assert first < (0.1 if fault == "down" else 0.7)
    until(lambda: not enqueuer.publisher.is_open, "the breaker to open")
    broken = median(seconds(enqueuer) for _ in range(20))
    assert broken - healthy < 0.005
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'pending'") == 42
    valkey.start() if fault == "down" else valkey.resume()
    with processes.worker("tests.end_to_end.shop", database_url, valkey.url, tmp_path / "log", environ=QUICK):
        until(lambda: rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'completed'") == 42, "all to run")
