"""What a platform may restart, and to what it may wait: neither probe asks Redis or Postgres."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from celeriac.local.valkey import free_port
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import Running, until


def probed(port: int) -> tuple[int | None, int | None]:
    """How `/livez` and `/readyz` answer; None: nobody does."""
    live, ready = (_status(f"http://127.0.0.1:{port}{path}") for path in ("/livez", "/readyz"))
    return live, ready


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_a_worker_at_work_is_live_and_ready_and_not_ready_once_it_drains(
    shop: ModuleType, worker: Callable[..., Running]
) -> None:
    port = free_port()
    running = worker("-c", "1", CELERIAC_METRICS_ADDRESS=str(port))
    until(lambda: probed(port) == (200, 200), "it to be ready")
    shop.slow.delay(3)
    until(lambda: "Claimed task" in running.printed(), "its child to be busy")
    assert probed(port) == (200, 200)
    running.process.terminate()
    until(lambda: probed(port) == (200, 503), "it to drain")
    assert running.stop() == 0


@pytest.mark.parametrize("away", ["DATABASE_URL", "REDIS_URL"])
def test_a_worker_that_waits_for_a_server_is_live_and_not_ready(
    away: str, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    port = free_port()
    nowhere = {
        "DATABASE_URL": "postgresql://celeriac@127.0.0.1:1/celeriac",
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    urls = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, away: nowhere[away]}
    environ = QUICK | urls | {"CELERIAC_METRICS_ADDRESS": str(port), "PYTHONPATH": str(processes.ROOT)}
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-c", "1"]
    with processes.process(command, environ, tmp_path / "log") as running:
        until(lambda: "Waiting for" in running.printed(), "it to wait")
        until(lambda: None not in probed(port), "its port to answer")
        assert probed(port) == (200, 503)
