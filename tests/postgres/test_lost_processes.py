"""What a lost process ran is released, however long somebody has it locked: its worker's heartbeat would renew it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from celeriac import Celeriac
from celeriac.run import lease, shared, traces
from celeriac.store.connections import Database
from celeriac.worker.lifeline import Lifeline, lost_process
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, enqueued, started
from tests.processes import Rows

LOST = 4711
STATES = "SELECT status, losses FROM worker_tasks ORDER BY id"


@pytest.fixture
def lifeline(app: Celeriac) -> Iterator[Lifeline]:
    lifeline = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    yield lifeline
    lifeline.database.dispose()


@pytest.fixture
def tasks(database: Database, rows: Rows) -> None:
    """Two that the process ran, each of a ticket of its own."""
    enqueued(database, new_task(), new_task())
    for _ in range(2):
        started(database, *claimed(database))
    rows("UPDATE tickets SET worker_id = :worker, worker_pid = :pid", worker=shared.worker_id(), pid=LOST)


@pytest.mark.usefixtures("tasks")
def test_a_ticket_that_is_locked_for_a_moment_is_released_at_the_next_look(
    lifeline: Lifeline, database: Database, rows: Rows
) -> None:
    lost_process(LOST)
    with database.transaction() as other:
        other.exec_driver_sql("SELECT FROM celeriac.tickets ORDER BY ids LIMIT 1 FOR UPDATE")
        lifeline.release_lost()
        assert rows(STATES) == [("running", 0), ("pending", 1)]
    lifeline.release_lost()
    assert rows(STATES) == [("pending", 1), ("pending", 1)]
    assert not lifeline.orphans


def died(database: Database, token: str) -> int:
    """A process that asked for this ticket and began none of its tasks."""
    if (pid := os.fork()) == 0:
        mine = traces.Traces()
        mine.keep(on=True)
        mine.opened(database, token)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return pid


def test_all_that_have_died_are_looked_for_at_once(
    database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With `worker_max_tasks_per_child=1` one dies with each task. One of them had a task that had not begun."""
    monkeypatch.setattr(traces, "MEMORY", tmp_path)
    enqueued(database, new_task())
    ids, token = claimed(database)
    _, pid, _ = (died(database, token) for _ in range(3))
    started(database, ids, token, pid=pid)
    rows("UPDATE tickets SET worker_id = :worker", worker=shared.worker_id())
    begun: list[None] = []
    transaction = Database.transaction
    monkeypatch.setattr(Database, "transaction", lambda *a, **k: begun.append(None) or transaction(*a, **k))
    traces.spare_neighbours(database)
    assert rows(STATES) == [("pending", 0)]
    traces.spare_neighbours(database)
    traces.spare_neighbours(database)
    assert len(begun) == 2
    assert not list(traces.folder().iterdir())


@pytest.mark.usefixtures("tasks")
def test_what_a_dead_namesake_ran_is_released_but_not_what_its_successor_begins(
    lifeline: Lifeline, database: Database, rows: Rows
) -> None:
    lifeline.take_over()
    rows("UPDATE tickets SET token = gen_random_uuid() WHERE ids = (SELECT max(ids) FROM tickets)")
    lifeline.release_lost()
    assert rows(STATES) == [("pending", 1), ("running", 0)]
    with database.statement() as connection:
        assert lease.renew(connection, shared.worker_id(), [LOST]) == 1
