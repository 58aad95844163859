"""Time limits of the configuration are each task's, not its ticket's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from celeriac import Settings
from tests.end_to_end.conftest import QUICK
from tests.processes import ROOT, Rows, Running, process, until

Worker = Callable[..., Running]

UNFINISHED = "SELECT FROM worker_tasks WHERE completed_at IS NULL"


@pytest.fixture
def limited(database_url: str, redis_url: str) -> Iterator[ModuleType]:
    module = importlib.import_module("tests.end_to_end.limited")
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name"):
        app.__dict__.pop(name, None)
    app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
    app.conf.broker_url = redis_url
    yield module
    app.publisher.close()
    app.database.dispose()


def test_a_ticket_may_take_longer_than_a_task_and_a_task_may_not(
    limited: ModuleType, worker: Worker, rows: Rows
) -> None:
    limited.app.register_roles()
    limited.short.bulk([(0.15,)] * 20)
    worker("-c", "1", module="tests.end_to_end.limited")
    until(lambda: not rows(UNFINISHED), "all of the ticket")
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    result = limited.long.delay(20)
    until(lambda: not rows(UNFINISHED), "the limit")
    assert result.status == "FAILURE"
    assert "SoftTimeLimitExceeded" in str(rows.one("SELECT error_message FROM worker_tasks WHERE role = 'long'"))


@pytest.mark.parametrize("option", ["--time-limit", "--soft-time-limit"])
def test_a_limit_on_the_command_line_is_refused(
    limited: ModuleType, database_url: str, redis_url: str, tmp_path: Path, option: str
) -> None:
    """It would be the ticket's, which is several tasks."""
    given = {**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "celery", "-A", limited.__name__, "worker", option, "60"]
    with process(command, given, tmp_path / "log") as started:
        assert started.process.wait(60) == 1
        assert f"Error: {option}: " in started.printed()
        assert "Traceback" not in started.printed()
