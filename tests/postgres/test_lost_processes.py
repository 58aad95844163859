"""What a lost process ran is released, however long somebody has it locked: its worker's heartbeat would renew it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from celeriac import Celeriac
from celeriac.run import lease, shared
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
