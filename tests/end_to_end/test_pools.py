"""Which of Celery's pools a worker can have: those whose tasks run in the main thread of a process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests import processes
from tests.processes import ROOT, Rows, Running, until

Worker = Callable[..., Running]


def test_threads_are_refused_in_a_line_that_says_what_to_use(database_url: str, redis_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-P", "threads"]
    environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    with processes.process(command, environ, tmp_path / "log") as running:
        assert running.process.wait(30) == 1
    (told,) = [line for line in running.printed().splitlines() if line.startswith("Error: ")]
    assert "-P threads" in told
    assert "use prefork" in told
    assert "Traceback" not in running.printed()


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_running_task_is_cancelled_and_its_worker_goes_on(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    running = worker("-P", pool, "-c", "1")
    long = shop.slow.delay(60)
    until(lambda: rows("SELECT FROM ran WHERE what = 'begin'"), "the start")
    shop.app.cancel(long.id)
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'cancelled'"), "the cancellation")
    assert shop.add.delay(1, 1).get(timeout=20) == 2
    assert running.process.poll() is None
