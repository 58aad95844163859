"""A worker works whether or not anybody reads what it prints."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, until

TASKS = 200


def test_a_pipe_that_nobody_reads_stops_no_task_and_no_shutdown(
    shop: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    os.mkfifo(log := tmp_path / "log")
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 16_384)
    environ = {**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "celery", "-A", shop.__name__, "worker", "-l", "INFO", "-c", "2"]
    with processes.process([*command, "--without-mingle", "--without-gossip"], environ, log) as running:
        for n in range(TASKS):
            shop.add.delay(n, n)
        until(lambda: rows.one("SELECT count(*) FROM history WHERE status = 'completed'") == TASKS, "all to complete")
        read = os.read(reader, 1 << 20)
        assert len(read) > 12_000, "the pipe was full"
        until(lambda: running.children(), "its processes")
        running.process.terminate()
        assert running.process.wait(30) == 0
    os.close(reader)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux")
def test_a_log_file_on_a_full_disk_costs_its_lines_alone(
    shop: ModuleType, rows: Rows, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    environ = {**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "celery", "-A", shop.__name__, "worker", "-l", "INFO", "-c", "1"]
    with processes.process([*command, "--logfile=/dev/full"], environ, tmp_path / "printed") as running:
        shop.add.delay(1, 1)
        until(lambda: rows.one("SELECT count(*) FROM history WHERE status = 'completed'") == 1, "it to complete")
        assert running.stop() == 0
        assert "No space left" not in running.printed()
