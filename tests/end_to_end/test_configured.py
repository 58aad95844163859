"""A worker configured for plain Celery runs rows, and names once what of its configuration is not used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import pytest

from celeriac import Settings
from tests import processes
from tests.processes import Rows, Running

MODULE = "tests.end_to_end.configured"

Worker = Callable[..., Running]


def test_rows_run_and_come_back_whatever_is_configured(
    worker: Worker, rows: Rows, database_url: str, redis_url: str
) -> None:
    running = worker("--without-heartbeat", module=MODULE)
    module = importlib.import_module(MODULE)
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name"):
        app.__dict__.pop(name, None)
    app.settings, app.conf.broker_url = Settings(database_url=database_url, redis_url=redis_url), redis_url
    try:
        double = app.tasks[f"{MODULE}.double"]
        assert double.delay(21).get(timeout=20) == 42
        with pytest.raises(ValueError, match="-1"):
            double.delay(-1).get(timeout=20)
        parcel, box, speed, address, ship = itemgetter("Parcel", "Box", "Speed", "Address", "ship")(module.written)
        shipped = ship.delay(parcel(7, Path("labels")), box("red"), speed.FAST, address(city="Ulm"))
        assert shipped.get(timeout=20) == parcel(7, Path("labels/red/Ulm/fast"))
    finally:
        app.publisher.close()
        app.database.dispose()
    printed = running.printed()
    for once in ("task_acks_late=True", "result_backend='redis://nowhere.invalid/1'"):
        assert printed.count(f"{once} is not used: ") == 1
    for once in ("task_serializer='pickle'", "accept_content=['pickle']", "kombu.utils.json.register_type"):
        assert printed.count(once) == 1
    assert "concurrency: 1 " in printed


def test_shared_and_class_tasks_run_by_their_roles(
    worker: Worker, rows: Rows, database_url: str, redis_url: str
) -> None:
    app = importlib.import_module(MODULE).app
    for name in ("database", "publisher", "enqueuer", "by_name"):
        app.__dict__.pop(name, None)
    app.settings, app.conf.broker_url = Settings(database_url=database_url, redis_url=redis_url), redis_url
    flaky = app.tasks["configured.flaky"]
    try:
        first, again = flaky.delay(7), flaky.delay(7)
        assert (again.id, again.is_new) == (first.id, False)
        other = app.tasks["configured.shared"].delay(8)
        worker("-c", "1", module=MODULE)
        assert first.get(timeout=20) == [7, 2]
        assert other.get(timeout=20) == [8, 2]
    finally:
        app.publisher.close()
        app.database.dispose()
    assert rows("SELECT role, retry_count FROM worker_tasks ORDER BY role") == [
        ("configured.flaky", 2), ("configured.shared", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("command", [["worker"], ["beat"]])
def test_a_broker_that_disagrees_is_told_in_a_line(
    command: list[str], database_url: str, redis_url: str, tmp_path: Path
) -> None:
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "CELERY_BROKER_URL": "redis://elsewhere.invalid/0"}
    args = [sys.executable, "-m", "celery", "-A", MODULE, *command]
    last = processes.refusal(args, given, tmp_path / "log")
    assert last.startswith("Error: REDIS_URL='")
    assert "disagree" in last
