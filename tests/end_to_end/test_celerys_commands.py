"""Celery's own ways to start workers: `celery multi`, `--autoscale`, `-c`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, Running, until

Worker = Callable[..., Running]


def test_celery_multi_starts_and_stops_workers(
    shop: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    servers = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}

    def multi(verb: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "multi", verb, "one", "two",
            "-c", "1", f"--pidfile={tmp_path}/%n.pid", f"--logfile={tmp_path}/%n.log"]  # fmt: skip
        done = processes.finished(command, {**os.environ, **QUICK, **servers})
        assert done.returncode == 0, done.stderr

    multi("start")
    try:
        until(lambda: rows.one("SELECT count(*) FROM celeriac.workers WHERE status = 'active'") == 2, "both workers")
        result = shop.add.delay(1, 2)
        assert result.get(timeout=30) == 3
    finally:
        multi("stopwait")
    assert rows("SELECT DISTINCT status FROM celeriac.workers") == [("stopped",)]


def test_a_queue_that_no_task_has_is_told(shop: ModuleType, worker: Worker) -> None:
    started = worker("-c", "1", "-Q", "slow,nonesuch")
    assert "No task of this code has the queue nonesuch: there are add, " in started.printed()


def test_autoscale_adds_processes_while_there_is_work(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    started = worker("--autoscale=3,1", "-Q", "slow")
    tasks = [shop.slow.delay(2.0) for _ in range(5)]
    until(lambda: len(started.children()) >= 3, "three processes")
    until(lambda: rows.one("SELECT count(*) FROM ran WHERE what = 'end'") == len(tasks), "all to end")
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]
