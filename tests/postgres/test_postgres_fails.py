"""What Postgres alone does to a task costs it no attempt; a restart, or a full disk, not even a loss."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from celeriac import Celeriac
from celeriac.errors import NotSettled
from celeriac.insights.fleet.ended import LOST
from celeriac.run.arrive import run_ticket
from celeriac.run.places import places
from celeriac.settle import release
from celeriac.store import failures
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, running
from tests.processes import Rows

STATUS = "SELECT status, losses, retry_count, tries FROM worker_tasks"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
OTHERS = f"SELECT count(pg_terminate_backend(pid, 5000)) FROM ({BACKENDS} AND application_name LIKE :name) AS others"

REFUSES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'of the engine''s own settle' USING ERRCODE = '{}'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON history FOR EACH ROW EXECUTE FUNCTION refuse()
"""

DISK_FULL, STATEMENT_TIMEOUT = "53100", "57014"

Run = Callable[..., None]


@pytest.fixture
def run(app: Celeriac, database: Database, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a task once that does something. No process ends, should its ticket break off."""
    monkeypatch.setattr(os, "_exit", lambda _: None)

    def run_once(does: Callable[[Any], object], **options: Any) -> None:
        @app.task(role="work", bind=True, shared=False, prompt=False, keep="forever", max_retries=0, **options)
        def work(self: Any) -> None:
            does(self)

        app.register_roles()
        work.delay()
        run_ticket(app, work.name, *claimed(database, "work"))

    return run_once


def writes(task: Any) -> None:
    task.session.execute(text("SELECT 1"))


# -- a restart ---------------------------------------------------------------------------------------------------------


def end_all(app: Celeriac, rows: Rows) -> None:
    """As a restart of Postgres does with the app's connections: those of its pools are closed, and nobody knows."""
    with app.database.engine.connect() as connection:
        name = connection.exec_driver_sql("SELECT current_setting('application_name')").scalar_one()
    assert rows.one(OTHERS, name=name)


def test_a_connection_that_a_restart_closed_while_it_was_idle_is_not_met_by_a_handler(
    app: Celeriac, run: Run, rows: Rows
) -> None:
    """22 tasks failed so in one restart."""

    def meets_it(task: Any) -> None:
        end_all(app, rows)
        writes(task)

    run(meets_it)
    assert rows(STATUS) == [("completed", 0, 0, 0)]


def test_a_restart_in_the_middle_of_a_handler_is_a_loss_and_burns_no_attempt(
    app: Celeriac, run: Run, rows: Rows
) -> None:
    def is_cut_off(task: Any) -> None:
        writes(task)
        end_all(app, rows)
        writes(task)

    run(is_cut_off)
    assert rows(STATUS) == [("pending", 1, 0, 0)]


UP = "CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT {} $$"


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize(("up", "losses"), [("now()", 0), ("now() - interval '1 day'", 1)])
def test_what_began_before_postgres_did_is_no_loss_of_the_tasks_however_it_is_found(
    database: Database, rows: Rows, kind: str, up: str, losses: int
) -> None:
    """A worker outlasts an outage for two minutes; then its process ends, which is no fault of its task's."""
    (task,) = running(database, new_task())
    rows(UP.format(up))
    with database.transaction() as connection:
        release.release(connection, [task.token], started=True, kind=kind, why="x", by="test", loss=True)
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", losses)]


# -- an error of the engine's own settle -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [DISK_FULL, STATEMENT_TIMEOUT])
def test_an_error_of_the_engines_own_settle_in_a_handlers_session_burns_no_attempt(
    run: Run, rows: Rows, code: str
) -> None:
    rows(REFUSES.format(code))
    run(writes)
    assert rows(STATUS) == [("pending", 1, 0, 0)]


def test_a_full_disk_burns_no_attempt_and_is_no_loss_that_counts(run: Run, rows: Rows) -> None:
    """However often it is met: another worker may find room again."""
    rows(REFUSES.format(DISK_FULL))
    with pytest.raises(OperationalError):
        run(lambda _: None, max_losses=1)
    assert rows(STATUS) == [("pending", 0, 0, 0)]


@pytest.mark.parametrize("code", ["22003", "54000"], ids=["a value out of range", "beyond a limit of Postgres'"])
def test_a_task_whose_outcome_is_refused_for_what_it_is_fails_after_its_losses(run: Run, rows: Rows, code: str) -> None:
    """It would be refused for ever."""
    rows(REFUSES.format(code))
    with suppress(Exception):
        run(lambda _: None, max_losses=2)
    assert rows(STATUS) == [("pending", 1, 0, 0)]


def test_a_settle_that_takes_too_long_burns_no_attempt(run: Run, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried for as long as Postgres may be away; then its process ends, and what it ran is released as lost."""
    monkeypatch.setattr(failures, "PATIENCE", 0.0)
    rows(REFUSES.format(STATEMENT_TIMEOUT))
    with pytest.raises(NotSettled):
        run(lambda _: None)
    assert rows(STATUS) == [("running", 0, 0, 0)]
    assert rows("SELECT CAST(token AS text) FROM tickets") == [(places.orphans.get_nowait(),)]
