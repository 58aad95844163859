"""Seventy steps of an ordinary code base come out the same on stock Celery and on Celeriac."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from tests import processes
from tests.processes import ROOT, until

CODE, STEPS = "tests.example.seventy.code", "tests.example.seventy"

#: What each step comes to on stock Celery.
RECORD = Path(__file__).parent / "seventy" / "stock.json"

#: Steps whose outcome differs: what they come to on Celeriac, and the row of docs/coming-from-celery.md that says so.
DIFFER: Mapping[str, tuple[Any, str]] = {
    "the_queues_are_purged": ("ClickException", "| `purge`, a worker's `--purge` | refused |"),
    "a_calls_own_queue": (
        """raised BadArguments("seventy.delivery: its queue is 'celery', set where the role is declared; not """
        """'reports': declare the task with queue='reports', or list it there among `queues`; nothing was enqueued")""",
        "a router that looks at the arguments | same | if the role lists it",
    ),
    "the_request_knows_roots_and_times": (
        [True, None, None, None, [None, None], None], "and `argsrepr` is what the call gives as such |",
    ),
}  # fmt: skip


def outcomes(which: str, home: Path, database_url: str, redis_url: str) -> dict[str, Any]:
    """What each step comes to, on a Redis with nothing of another's."""
    home.mkdir()
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    environ = {
        **os.environ, "SEVENTY_CELERY": which, "SEVENTY_BEAT": str(home / "schedule"), "PYTHONPATH": str(ROOT),
        "DATABASE_URL": database_url, "REDIS_URL": redis_url,
    }  # fmt: skip
    words = ["-m", "celery", "-A", CODE, "worker", "-c", "2", "-E", "-Q", "celery,reports", "-l", "INFO"]
    with processes.process([sys.executable, *words], environ, home / "worker.log") as worker:
        until(lambda: " ready." in worker.printed(), "the worker")
        done = subprocess.run(
            [sys.executable, "-m", STEPS], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=540
        )
        assert done.returncode == 0, done.stderr[-3000:]
        worker.stop()
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.timeout(600)
def test_at_most_three_of_seventy_steps_differ_and_each_is_a_row_of_the_table(
    tmp_path: Path, database_url: str, redis_url: str
) -> None:
    stock = json.loads(RECORD.read_text())
    ours = outcomes("celeriac", tmp_path / "celeriac", database_url, redis_url)
    assert len(stock) == 70
    differ = {name: ours.get(name) for name in stock | ours if stock.get(name) != ours.get(name)}
    assert differ == {name: outcome for name, (outcome, _) in DIFFER.items()}
    assert len(DIFFER) <= 3
    page = (ROOT / "docs" / "coming-from-celery.md").read_text()
    assert [row for _, row in DIFFER.values() if row not in page] == []


@pytest.mark.nightly("stock Celery changes when a release of it does")
@pytest.mark.timeout(600)
def test_on_stock_celery_they_come_to_what_is_recorded(tmp_path: Path, database_url: str, redis_url: str) -> None:
    assert outcomes("stock", tmp_path / "stock", database_url, redis_url) == json.loads(RECORD.read_text())
