"""By default a quiet account's task is not behind a loud one's backlog, however long its tasks take: nothing is set."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from celeriac import Settings
from tests.processes import Rows, until, worker

SLOTS = 4

QUIET = ("a", "b", "c", "d")

DONE = "SELECT count(*) FROM worker_tasks WHERE role = :role AND account = 'loud' AND status = 'completed'"

#: Of the loud account's tasks, those that began between a newcomer's call and its start, at most.
BEHIND = """
SELECT max((SELECT count(*) FROM worker_tasks loud WHERE loud.account = 'loud'
    AND loud.started_at > quiet.created_at AND loud.started_at < quiet.started_at))
FROM worker_tasks quiet WHERE quiet.account <> 'loud'
"""

STARTED = "SELECT count(*) FROM worker_tasks WHERE account <> 'loud' AND started_at IS NOT NULL"


@pytest.fixture
def flood(database_url: str, redis_url: str) -> Iterator[ModuleType]:
    module = importlib.import_module("tests.end_to_end.flood")
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name", "limited", "tally"):
        app.__dict__.pop(name, None)
    app.settings = Settings.from_environ({"DATABASE_URL": database_url, "REDIS_URL": redis_url})
    app.conf.broker_url = redis_url
    app.register_roles()
    yield module
    app.publisher.close()
    app.database.dispose()


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        (0.2, 40),
        (0.02, 400),
        pytest.param(5.0, 8, marks=pytest.mark.nightly("twenty seconds of tasks that take five")),
    ],
)
def test_a_newcomer_waits_for_about_a_second_of_others_tasks(
    flood: ModuleType, database_url: str, redis_url: str, rows: Rows, tmp_path: Path, seconds: float, first: int
) -> None:
    flood.call.bulk([("loud", seconds)] * 5_000)
    with worker("tests.end_to_end.flood", database_url, redis_url, tmp_path / "log", "-c", str(SLOTS)):
        until(lambda: rows.one(DONE, role="call") >= first, "the flood to be under way")  # type: ignore[operator]
        for account in QUIET:
            flood.call.delay(account, seconds)
        until(lambda: rows.one(STARTED) == len(QUIET), "the newcomers to start")
    a_second = SLOTS / seconds
    # What runs, what is claimed in advance, and as much again: a pass may just have been made.
    assert rows.one(BEHIND) <= 2 * (SLOTS + a_second)  # type: ignore[operator]
