"""The log's lines are those that the store workers' operators know, and tell of rows by their ids."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from celeriac import Settings
from tests.end_to_end.conftest import QUICK
from tests.processes import Rows, Running, until

Worker = Callable[..., Running]

# The application's task of the same name is shared with every app of this process, if it is imported there.
pytestmark = pytest.mark.filterwarnings("ignore:Task name .* is already registered")

MODULE = "tests.end_to_end.resyncs"


@pytest.fixture
def resyncs(database_url: str, redis_url: str, rows: Rows) -> Iterator[ModuleType]:
    module = importlib.import_module(MODULE)
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name", "clocks", "journal"):
        app.__dict__.pop(name, None)
    app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
    app.conf.broker_url = redis_url
    yield module
    app.publisher.close()
    app.database.dispose()


def test_lines_tell_who_works_at_what(resyncs: ModuleType, worker: Worker, rows: Rows) -> None:
    running = worker("-c", "1", module=MODULE, WORKER_ID="worker-product_resync-a1b2c3d4")
    assert "[TaskWorker] Starting worker worker-product_resync-a1b2c3d4 for role: product_resync" in running.printed()
    good, bad = resyncs.product_resync.delay(456), resyncs.product_resync.delay(457, fail=True)
    until(lambda: rows.one("SELECT count(*) FROM history") == 2, "both to end")
    until(lambda: f"Task {bad.row_id} failed" in running.printed(), "its line")
    printed = running.printed()
    assert f"[TaskWorker] Claimed task {good.row_id} (product_resync) for dispensary 456" in printed
    assert f"[TaskWorker] Task {good.row_id} completed successfully" in printed
    assert f"[TaskWorker] Task {bad.row_id} failed: Permanent: the menu is gone" in printed
    assert f"Task product_resync[{good.id}] succeeded in" in printed
    assert "celeriac.ticket" not in printed


def test_on_request_each_line_is_json(resyncs: ModuleType, worker: Worker, rows: Rows) -> None:
    running = worker("-c", "1", module=MODULE, CELERIAC_LOG_FORMAT="json")
    task = resyncs.product_resync.delay(456)
    done = f"[TaskWorker] Task {task.row_id} completed successfully"
    until(lambda: done in running.printed(), "its line")
    said = lines(running)
    known = [line["event"] for line in said if "event" in line and line["event"] != "pass"]
    assert known == ["worker.started", "task.claimed", "task.completed"]
    (started,) = [line for line in said if line.get("event") == "worker.started"]
    assert re.fullmatch("worker-product_resync-[0-9a-f]{8}", started["worker"])
    (claimed,) = [line for line in said if line.get("event") == "task.claimed"]
    assert {name: claimed[name] for name in ("task", "task_id", "role", "dispensary", "level", "attempt")} == {
        "task": task.row_id, "task_id": task.id, "role": "product_resync", "dispensary": 456, "level": "INFO",
        "attempt": 1,
    }  # fmt: skip
    (own,) = [line for line in said if line["message"] == "looking at 456"]
    assert (own["task_id"], own["task_name"], own["logger"]) == (task.id, "product_resync", "resyncs")
    (ended,) = [line for line in said if line["message"] == done]
    assert ended["seconds"] < 5


def lines(running: Running) -> list[dict[str, Any]]:
    """Without the banner."""
    return [json.loads(line) for line in running.printed().splitlines() if line.startswith("{")]
