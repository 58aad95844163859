"""A worker whose slots share a process is as busy as it has tasks, for every surface; never more than it has slots."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from celeriac import Celeriac, insights
from celeriac.insights.fleet.watched import left_ready
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import live_worker, registered
from tests.postgres.stages import WORKER, enqueued, running
from tests.postgres.test_exporter import at, figures
from tests.processes import Rows

SHARES = json.dumps({"shares_process": True})


@pytest.fixture
def seen(app: Celeriac, database: Database) -> Callable[[], tuple[int, int, float]]:
    """The busy slots by workers, by their reports and by metrics."""

    def read() -> tuple[int, int, float]:
        with database.statement() as connection:
            (worker,), (report,) = insights.workers(connection), insights.heartbeats(connection)
        assert len(report["current_task_ids"]) == report["active_task_count"]
        found = figures(app)
        idle = at(found, "workers_idle", role="work")
        return worker["busy"], report["active_task_count"], at(found, "worker_slots", role="work") - idle

    return read


@pytest.fixture(autouse=True)
def tickets(database: Database, rows: Rows) -> None:
    """Two tickets of one process: 30 and 40 tasks."""
    registered(rows, "work", window=1000)
    for n in (30, 40):
        running(database, *(new_task() for _ in range(n)))


@pytest.mark.parametrize(("slots", "busy"), [(100, 70), (70, 70), (50, 50)])
def test_each_of_its_tasks_has_a_slot(rows: Rows, seen: Callable[[], object], slots: int, busy: int) -> None:
    live_worker(rows, WORKER, concurrency=slots, resources=SHARES)
    assert seen() == (busy, busy, busy)


def test_a_process_of_its_own_runs_one_of_its_tickets(rows: Rows, seen: Callable[[], object]) -> None:
    live_worker(rows, WORKER, concurrency=100)
    assert seen() == (1, 1, 1)


@pytest.mark.parametrize(("slots", "is_left"), [(71, True), (70, False)])
def test_one_without_a_free_slot_leaves_nothing_lying(
    database: Database, rows: Rows, slots: int, is_left: bool
) -> None:
    live_worker(rows, WORKER, concurrency=slots, resources=SHARES)
    enqueued(database, new_task())
    with database.statement() as connection:
        assert bool(left_ready(connection, {"work": 1e6}, 10)) is is_left
