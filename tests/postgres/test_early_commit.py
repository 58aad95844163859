"""What a handler commits early: seen at once, whatever becomes of the task, and only while the task is its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from celeriac.errors import LeaseLost
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, outcome, running, settled
from tests.processes import Rows, until

WRITE = text("INSERT INTO notes VALUES ('seen')")
NOTES = "SELECT count(*) FROM notes"
WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def run(database: Database, rows: Rows) -> Run:
    rows("CREATE TABLE notes (what text)")
    (task,) = running(database, new_task())
    return Run(task, Role(name="work"), database)


def test_it_is_seen_while_the_task_runs_and_stays_if_the_task_fails(database: Database, run: Run, rows: Rows) -> None:
    with run.early_commit() as session:
        session.execute(WRITE)
    assert rows(NOTES) == [(1,)]
    assert settled(database, outcome(run.task, "failed", kind="failed"))
    assert rows(NOTES) == [(1,)]


def test_a_run_that_lost_its_row_writes_nothing(database: Database, run: Run, rows: Rows) -> None:
    settled(database, again(run.task))
    with pytest.raises(LeaseLost), run.early_commit() as session:
        session.execute(WRITE)
    assert rows(NOTES) == [(0,)]


def test_an_error_within_writes_nothing(run: Run, rows: Rows) -> None:
    def fails() -> None:
        with run.early_commit() as session:
            session.execute(WRITE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert rows(NOTES) == [(0,)]


def test_a_row_that_is_being_taken_is_waited_for_and_the_writes_refused(
    database: Database, run: Run, rows: Rows
) -> None:
    with database.transaction() as connection, ThreadPoolExecutor() as pool:
        connection.execute(
            text("UPDATE worker_tasks SET status = 'pending', token = NULL WHERE id = :id"), {"id": run.task.id}
        )

        def late() -> None:
            with run.early_commit() as session:
                session.execute(WRITE)

        writes = pool.submit(late)
        until(lambda: rows(WAITS), "the late run to wait")
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("BEGIN")
        with pytest.raises(LeaseLost):
            writes.result(30)
    assert rows(NOTES) == [(0,)]
