"""celery-exporter, with its own Celery and redis-py, has the same figures beside stock Celery and beside Celeriac."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from celeriac.local.valkey import free_port
from tests import processes
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, until

MODULE = "tests.matrix.around.exported"

#: Its package has no script of its own.
PROGRAM = "from src.cli import cli; cli()"

TASKS = ("exported.add", "exported.fail", "exported.again")

#: What it shows once a worker of two processes has had three tasks that succeed, one that fails and one that is tried
#: again. (Neither Celery's workers nor ours say in their events from which queue a task came.)
FIGURES = {
    **{("task_received", task): n for task, n in zip(TASKS, (3, 1, 2), strict=True)},
    **{("task_started", task): n for task, n in zip(TASKS, (3, 1, 2), strict=True)},
    ("task_succeeded", "exported.add"): 3, ("task_succeeded", "exported.again"): 1,
    ("task_failed", "exported.fail", "KeyError"): 1, ("task_retried", "exported.again"): 1,
    ("task_runtime_count", "exported.add"): 3, ("task_runtime_count", "exported.again"): 1,
    ("worker_up",): 1,
    **{("active_worker_count", task): 1 for task in TASKS},
    **{("active_process_count", task): 2 for task in TASKS},
}  # fmt: skip

_SAMPLE = re.compile(r"^celery_(\w+?)(?:_total)?\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def figures(port: int) -> dict[tuple[str, ...], int]:
    """Return its figures that are not 0, by name and by task or queue; of run times only how many there were."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        shown = answer.read().decode()
    seen: dict[tuple[str, ...], int] = {}
    for name, labels, value in _SAMPLE.findall(shown):
        of = dict(_LABEL.findall(labels))
        if name.endswith(("_created", "_bucket", "_sum")) or not float(value):
            continue
        which = of.get("name") or (of["queue_name"] if name.startswith(("active_", "queue_")) else None)
        key = (name, *filter(None, (which, of.get("exception"))))
        seen[key] = seen.get(key, 0) + int(float(value))
    return seen


@contextmanager
def exporter(redis_url: str, folder: Path) -> Iterator[int]:
    """Run celery-exporter; yield its port."""
    port = free_port()
    command = [os.environ["EXPORTER_PYTHON"], "-P", "-c", PROGRAM, "--broker-url", redis_url, "--host", "127.0.0.1"]
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    with processes.process([*command, "--port", str(port)], environ, folder / "exporter.log", alone=True):
        until(lambda: processes.answers(f"http://127.0.0.1:{port}/health"), "celery-exporter to answer")
        yield port


@pytest.mark.timeout(600)  # each reading asks the workers twice, and waits a second for each answer
@pytest.mark.parametrize("celery", ["stock", "ours"])
def test_its_figures_are_the_same_beside_either(celery: str, tmp_path: Path, database_url: str, redis_url: str) -> None:
    environ = {
        **QUICK, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "EXPORTED_CELERY": celery,
        "DATABASE_URL": database_url, "REDIS_URL": redis_url,
    }  # fmt: skip
    with exporter(redis_url, tmp_path) as port:
        options = ("-c", "2", "-E", "-Q", ",".join(TASKS))
        with processes.worker(
            MODULE, database_url, redis_url, tmp_path / "worker.log", *options, environ=environ
        ) as worker:
            until(lambda: figures(port).get(("worker_up",)) == 1, "the worker to be seen")
            done = subprocess.run(
                [sys.executable, "-m", MODULE], env=environ, cwd=ROOT, capture_output=True, timeout=90
            )
            assert done.returncode == 0, done.stderr[-3000:]
            with suppress(AssertionError):
                until(lambda: figures(port) == FIGURES, "its figures")
            assert figures(port) == FIGURES
            worker.stop()
        until(lambda: ("worker_up",) not in figures(port), "the worker to be gone")
