"""By default a quiet account's task is not behind a loud one's backlog, however long its tasks take: nothing is set."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from celeriac import Settings
from tests.processes import Rows, beat, crowd, until, worker

SLOTS = 4

QUIET = ("a", "b", "c", "d")

#: Seconds that a newcomer may wait beyond the run that is in its way, and beyond beat's next pass, where each process
#: has a processor.
AT_MOST = 2.0

DONE = "SELECT count(*) FROM worker_tasks WHERE role = :role AND account = 'loud' AND status = 'completed'"

#: Of the loud account's tasks, those that began between a newcomer's call and its start, at most.
BEHIND = """
SELECT max((SELECT count(*) FROM worker_tasks loud WHERE loud.account = 'loud'
    AND loud.started_at > quiet.created_at AND loud.started_at < quiet.started_at))
FROM worker_tasks quiet WHERE quiet.account <> 'loud'
"""

WAITED = """
SELECT max(extract(epoch FROM started_at - created_at)) FROM worker_tasks WHERE account <> 'loud' AND role = :role
"""

#: Since the first pass that could see it.
WAITED_SINCE_PASS = """
SELECT max(extract(epoch FROM quiet.started_at - (
    SELECT min(at) FROM passes WHERE role = :role AND at > quiet.created_at)))
FROM worker_tasks quiet WHERE quiet.account <> 'loud' AND quiet.role = :role
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
    # Where a run takes longer than a second, one that runs and one that was claimed may be in its way.
    assert rows.one(WAITED, role="call") <= AT_MOST * crowd() + (2 * seconds if seconds > 1 else 0)  # type: ignore[operator]


def test_a_newcomer_waits_no_longer_after_a_pause(
    flood: ModuleType, database_url: str, redis_url: str, rows: Rows, tmp_path: Path
) -> None:
    seconds = 0.2
    flood.call.bulk([("loud", seconds)] * 5_000)
    with worker("tests.end_to_end.flood", database_url, redis_url, tmp_path / "log", "-c", str(SLOTS)):
        until(lambda: rows.one(DONE, role="call") >= 40, "the flood to be under way")  # type: ignore[operator]
        rows("UPDATE roles SET paused = true WHERE role = 'call'")
        until(lambda: rows.one("SELECT count(*) FROM tickets") == 0, "what runs to end")
        rows("UPDATE roles SET paused = false WHERE role = 'call'")
        for account in QUIET:
            flood.call.delay(account, seconds)
        until(lambda: rows.one(STARTED) == len(QUIET), "the newcomers to start")
    assert rows.one(WAITED, role="call") <= AT_MOST * crowd()  # type: ignore[operator]


@pytest.mark.parametrize(
    "role", ["often", pytest.param("batch", marks=pytest.mark.nightly("two of beat's passes, at thirty seconds"))]
)
def test_a_newcomer_waits_for_beats_next_pass_and_no_longer(
    flood: ModuleType, database_url: str, redis_url: str, rows: Rows, tmp_path: Path, role: str
) -> None:
    seconds = 0.2
    task = getattr(flood, role)
    task.bulk([("loud", seconds)] * 5_000)
    log = tmp_path / "log"
    with (
        worker("tests.end_to_end.flood", database_url, redis_url, log, "-c", str(SLOTS)),
        beat("tests.end_to_end.flood", database_url, redis_url, tmp_path / "beat.log", {}),
    ):
        until(lambda: rows.one(DONE, role=role) >= 20, "the flood to be under way", 90)  # type: ignore[operator]
        for account in QUIET:
            task.delay(account, seconds)
        until(lambda: rows.one(STARTED) == len(QUIET), "the newcomers to start", 90)
    assert rows.one(WAITED_SINCE_PASS, role=role) <= AT_MOST * crowd()  # type: ignore[operator]
