"""No log line of a worker shows what a role keeps secret, in either format, for each way in which a task can end."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from celery import Celery

from celeriac import Settings
from tests.end_to_end.conftest import QUICK
from tests.processes import Rows, Running, until

MODULE = "tests.end_to_end.vaults"
SECRET = "kanarienvogel-4711-kanarienvogel"
WAYS = ("fine", "permanent", "again", "chained", "unreadable", "no result", "exit", "slow", "killed")


@pytest.fixture
def vaults(database_url: str, redis_url: str, rows: Rows) -> Iterator[ModuleType]:
    module = importlib.import_module(MODULE)
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name", "journal"):
        app.__dict__.pop(name, None)
    app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
    app.conf.broker_url = redis_url
    yield module
    app.publisher.close()
    app.database.dispose()


@pytest.mark.parametrize(
    "kind", ["text", pytest.param("json", marks=pytest.mark.nightly("by day test_json_logs looks for a secret there"))]
)
def test_no_line_of_a_worker_has_a_secret(
    vaults: ModuleType, worker: Callable[..., Running], rows: Rows, other: Celery, kind: str
) -> None:
    running = worker("-c", "2", module=MODULE, CELERIAC_LOG_FORMAT=kind)
    for task in (vaults.sign_in, vaults.hooked):
        for way in WAYS:
            task.delay(way, password=SECRET)
            task.delay(way, SECRET)
    other.send_task("sign_in", ("fine",), {"password": SECRET, SECRET: SECRET}, queue="sign_in")
    other.send_task("sign_in", (SECRET, SECRET, SECRET), queue="sign_in")
    other.send_task("sign_in", ("again",), {"password": SECRET}, queue="sign_in")
    until(lambda: rows.one("SELECT count(*) FROM dead_letters") == 2, "the letters", 120)
    ended = 2 * 2 * (len(WAYS) - 1)
    until(lambda: rows.one("SELECT count(*) FROM history") >= ended, "all to end but those that are tried again", 240)
    assert running.stop() == 0
    printed = running.log.read_text()
    assert [line for line in printed.splitlines() if "kanarien" in line or "-4711-" in line] == []
    assert "dead letter(s), one of sign_in" in printed
    assert printed.count("Traceback") >= len(WAYS)
