"""What an autoscaler reads: `celeriac.wanted_slots`, by a login that may execute it and nothing else."""

from __future__ import annotations

import os

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, running
from tests.processes import Rows

WINDOW = 5


def wanted(rows: Rows, role: str = "work") -> float:
    return float(rows(f"SELECT celeriac.wanted_slots('{role}')")[0][0])


@pytest.fixture
def work(rows: Rows) -> None:
    rows(
        f"""INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{{"queue": "work", "window": {WINDOW}}}')"""
    )


@pytest.mark.usefixtures("work")
def test_what_waits_and_is_due_wants_a_slot(database: Database, rows: Rows) -> None:
    assert wanted(rows) == 0
    enqueued(database, new_task(), new_task(), new_task(delay=600.0))
    assert wanted(rows) == 2, "one is not due"
    rows("""WITH due AS (UPDATE celeriac.tasks SET scheduled_for = now() - interval '1 second'
            WHERE id = (SELECT id FROM celeriac.later) RETURNING id, scheduled_for)
        UPDATE celeriac.later l SET due_at = due.scheduled_for FROM due WHERE l.id = due.id""")
    assert wanted(rows) == 3


@pytest.mark.usefixtures("work")
def test_what_is_held_counts_and_the_window_is_the_bound(database: Database, rows: Rows) -> None:
    running(database, new_task(), new_task())
    assert wanted(rows) == 2
    enqueued(database, *(new_task() for _ in range(2)))
    assert wanted(rows) == 4
    enqueued(database, *(new_task() for _ in range(50)))
    assert wanted(rows) == WINDOW


@pytest.mark.usefixtures("work")
def test_a_paused_role_wants_what_it_holds(database: Database, rows: Rows) -> None:
    running(database, new_task())
    enqueued(database, new_task(), new_task())
    rows("UPDATE celeriac.roles SET paused = true")
    assert wanted(rows) == 1


def test_an_unknown_role_wants_none(rows: Rows) -> None:
    assert wanted(rows, "nonesuch") == 0


@pytest.mark.usefixtures("work")
def test_an_autoscaler_may_ask_this_and_nothing_else(database: Database, rows: Rows) -> None:
    enqueued(database, new_task())
    login = f"autoscaler_{os.getpid()}"
    rows(f"CREATE ROLE {login}")
    try:
        rows(f"GRANT USAGE ON SCHEMA celeriac TO {login}")
        rows(f"GRANT EXECUTE ON FUNCTION celeriac.wanted_slots TO {login}")
        with database.transaction() as connection:
            connection.execute(text(f"SET LOCAL ROLE {login}"))
            assert connection.execute(text("SELECT celeriac.wanted_slots('work')")).scalar_one() == 1
        for refused in ("SELECT * FROM celeriac.backlog('work')", "SELECT * FROM celeriac.ready"):
            with database.transaction() as connection:
                connection.execute(text(f"SET LOCAL ROLE {login}"))
                with pytest.raises(DBAPIError, match="permission denied"):
                    connection.execute(text(refused))
                connection.rollback()
    finally:
        rows(f"DROP OWNED BY {login}")
        rows(f"DROP ROLE {login}")
