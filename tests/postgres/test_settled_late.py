"""An outcome whose row somebody has locked is written once that is over, with what its handler wrote, and only once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import text

from celeriac import Celeriac
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.settle import write
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, outcome, running
from tests.processes import Rows, until

UPDATE = "UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'"

WAITS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def wrote(rows: Rows) -> Callable[[], int]:
    rows("CREATE TABLE written (n integer)")
    return lambda: len(rows("SELECT FROM written"))


def run_of(task: Started, database: Database) -> Run:
    run = Run(task, Role(name="work"), database)
    run.session.execute(text("INSERT INTO written VALUES (1)"))
    run.outcome = outcome(task)
    return run


def test_what_a_handler_wrote_commits_with_its_outcome_once_the_lock_is_gone(
    app: Celeriac, database: Database, rows: Rows, wrote: Callable[[], int]
) -> None:
    (task,) = running(database, new_task())
    run = run_of(task, database)
    with database.transaction() as other:
        other.exec_driver_sql(UPDATE)
        app.settler.settle_with_session(run, run.session if run.opened is None else run.opened)
        assert (run.settled, wrote()) == (False, 0)
        assert not app.settler.settle_late(run)
        assert (run.settled, wrote()) == (False, 0)
    assert app.settler.settle_late(run)
    assert wrote() == 1
    assert rows("SELECT status, losses FROM worker_tasks") == [("completed", 0)]


def test_a_handlers_own_lock_timeout_is_no_matter_for_its_commit(
    app: Celeriac, database: Database, wrote: Callable[[], int]
) -> None:
    (task,) = running(database, new_task())
    run = run_of(task, database)
    assert run.opened is not None
    app.settler.settle_with_session(run, run.opened)
    assert run.settled
    assert wrote() == 1


@pytest.mark.parametrize("ends", [outcome, again])
def test_who_waited_for_an_update_of_the_view_finds_its_new_row(
    database: Database, rows: Rows, ends: Callable[[Started], object]
) -> None:
    """The view's trigger replaces a ticket's row: who waited for the old one found it gone, and settled nothing."""
    from concurrent.futures import ThreadPoolExecutor

    (task,) = running(database, new_task())

    def settle() -> dict[int, str]:
        with database.transaction() as connection:
            return write.settle(connection, [ends(task)], "test")  # type: ignore[list-item]

    with ThreadPoolExecutor() as threads:
        with database.transaction() as other:
            other.exec_driver_sql(UPDATE)
            settled = threads.submit(settle)
            until(lambda: rows.one(WAITS) == 1, "the settle to wait")
        assert settled.result(60).keys() == {task.id}


def test_progress_of_a_locked_row_is_left_out_and_the_handler_goes_on(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    run = Run(task, Role(name="work"), database)
    with database.transaction() as other:
        other.exec_driver_sql(UPDATE)
        began = time.monotonic()
        run.progress({"step": 1})
        assert time.monotonic() - began < 30
    run.progress({"step": 2})
    assert rows("SELECT progress FROM worker_tasks") == [({"step": 2},)]
