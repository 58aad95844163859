"""Migrate makes what is missing although data, locks, an interruption or the turn of a day come between."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from celeriac import Celeriac
from celeriac.store.connections import Database
from celeriac.store.drift import drift
from celeriac.store.failures import is_gone
from celeriac.store.migrate import migrate
from tests.postgres import stages
from tests.postgres.commands.results import DONE, Run
from tests.postgres.commands.workers import work
from tests.postgres.conftest import new_task
from tests.processes import Rows, until

#: Of history's partitions, each with its index of those that ended badly: in the order in which they are built.
CHILDREN = """
SELECT 'celeriac.' || c.relname, x.indexrelid FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
JOIN pg_class c ON c.oid = x.indrelid
WHERE i.inhparent = CAST('celeriac.history_ended_badly' AS regclass) ORDER BY 1
"""

#: The index of the partition that is the last, and what it is on.
OF_THE_LAST = "celeriac.history_rest_history_ended_badly"
DEFINITION = "(status, role, (-id)) WHERE status IN ('failed', 'cancelled')"

DAYS = """
SELECT 'celeriac.' || c.relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
WHERE inhparent = CAST('celeriac.history' AS regclass) ORDER BY 1
"""

WAITS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
    AND query LIKE 'CREATE INDEX CONCURRENTLY % ON ' || :day || ' %'
"""

VALIDATED = "SELECT conname FROM pg_constraint WHERE convalidated AND conname IN (:one, :other)"

COMMENTS = """
SELECT description FROM pg_description d JOIN pg_class c ON c.oid = d.objoid
WHERE c.relnamespace = CAST('celeriac' AS regnamespace) AND d.classoid = CAST('pg_class' AS regclass)
UNION ALL SELECT description FROM pg_description WHERE classoid = CAST('pg_constraint' AS regclass)
    AND description ~ 'celeriac'
"""


def missing(database: Database) -> set[str]:
    with database.statement() as connection:
        return {part.name for part in drift(connection)}


@pytest.mark.breaks_invariants
def test_data_that_forbids_a_part_keeps_nothing_else_from_being_made(
    run: Run, rows: Rows, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """What an operator left unvalidated stays so: its rows are known."""
    rows("DROP INDEX celeriac.tasks_one_unfinished")
    stages.enqueued(database, new_task(), new_task())
    rows("UPDATE celeriac.tasks SET unique_key = 'one'")
    rows("ALTER TABLE celeriac.workers DROP CONSTRAINT workers_status_known")
    work(rows, "odd")
    rows("UPDATE celeriac.workers SET status = 'odd'")
    rows("ALTER TABLE celeriac.failure_marks DROP CONSTRAINT failure_marks_state_known, DROP COLUMN by")
    rows("INSERT INTO celeriac.failure_marks (fingerprint, state, at) VALUES ('a', 'odd', now())")
    rows(
        "ALTER TABLE celeriac.failure_marks"
        " ADD CONSTRAINT failure_marks_state_known CHECK (state IN ('known', 'resolved')) NOT VALID"
    )
    rows("DROP TABLE celeriac.unparking")
    with caplog.at_level(logging.ERROR, "celeriac.store.mend"):
        assert run("migrate").exit_code == DONE
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "Migrate could not make the column failure_marks.by",
        "Migrate could not make the index tasks_one_unfinished",
        "Migrate could not validate the constraint workers.workers_status_known",
    ]
    assert not [line for line in caplog.messages if "\n" in line or "'one'" in line]
    assert missing(database) == {"failure_marks.by", "tasks_one_unfinished"}
    assert "the column failure_marks.by is missing" in run("doctor").output
    rows("UPDATE celeriac.tasks SET unique_key = NULL")
    rows("UPDATE celeriac.workers SET status = 'stopped'")
    rows("TRUNCATE celeriac.failure_marks")
    assert run("migrate").exit_code == DONE
    assert missing(database) == set()
    validated = rows(VALIDATED, one="workers_status_known", other="failure_marks_state_known")
    assert (validated, rows(COMMENTS)) == ([("workers_status_known",)], [])


def test_days_come_and_go_while_an_index_is_built_on_each(app: Celeriac, rows: Rows, database: Database) -> None:
    migrate(app.database.engine)  # makes the next days
    rows("DROP INDEX celeriac.history_ended_badly")
    days = [day for (day,) in rows(DAYS)]
    with ThreadPoolExecutor(1) as aside:
        with database.transaction() as other:
            other.exec_driver_sql(f"LOCK TABLE {days[1]} IN ACCESS EXCLUSIVE MODE")
            building = aside.submit(migrate, app.database.engine)
            until(lambda: building.done() or rows(WAITS, day=days[1]), "the build of the second day's index")
            for day in days[1:3]:
                other.exec_driver_sql(f"SELECT celeriac.drop_history_day(CAST('{day[-8:]}' AS date))")
            other.exec_driver_sql(f"SELECT celeriac.add_history_day(CAST('{days[-2][-8:]}' AS date) + 1)")
        building.result()
    assert missing(database) == set()
    assert [day for day, _ in rows(CHILDREN)] == [day for (day,) in rows(DAYS)]
    assert rows(COMMENTS) == []


def break_off(app: Celeriac, rows: Rows, database: Database) -> None:
    """Migrate until all partitions but the last have that index."""
    migrate(app.database.engine)  # makes the next days
    rows("DROP INDEX celeriac.history_ended_badly")
    with ThreadPoolExecutor(1) as aside, database.transaction() as other:
        other.exec_driver_sql("LOCK TABLE celeriac.history_rest IN ROW EXCLUSIVE MODE")
        building = aside.submit(migrate, app.database.engine)
        until(lambda: building.done() or rows(WAITS, day="celeriac.history_rest"), "the build of the last index")
        rows(f"SELECT pg_terminate_backend(pid) FROM ({WAITS}) waits", day="celeriac.history_rest")
        error = building.exception()
    assert error is not None
    assert is_gone(error)


def test_a_build_that_was_broken_off_is_continued(app: Celeriac, rows: Rows, database: Database) -> None:
    """Each partition's index may have taken an hour."""
    break_off(app, rows, database)
    built = rows(CHILDREN)
    assert len(built) == len(rows(DAYS)) - 1
    rows(f"DROP INDEX {OF_THE_LAST}")
    rows(f"CREATE INDEX {OF_THE_LAST.partition('.')[2]} ON celeriac.history_rest {DEFINITION}")
    built += rows("SELECT 'celeriac.history_rest', CAST(:last AS regclass)::oid", last=OF_THE_LAST)
    migrate(app.database.engine)
    assert (missing(database), rows(COMMENTS)) == (set(), [])
    assert rows(CHILDREN) == built


@pytest.mark.parametrize(
    "meanwhile",
    [
        ["DROP INDEX celeriac.history_ended_badly", "CREATE INDEX history_ended_badly ON ONLY celeriac.history (id)"],
        [f"DROP INDEX {OF_THE_LAST}", f"CREATE INDEX {OF_THE_LAST.partition('.')[2]} ON celeriac.history_rest (id)"],
        ["DROP TABLE celeriac.history_rest"],
    ],
    ids=["of another definition", "a partition's of another definition", "all attached"],
)
def test_an_index_that_attaching_does_not_complete_is_made_anew(
    app: Celeriac, rows: Rows, database: Database, meanwhile: list[str]
) -> None:
    """That of the whole becomes valid only as another partition's is attached."""
    break_off(app, rows, database)
    for statement in meanwhile:
        rows(statement)
    migrate(app.database.engine)
    assert (missing(database), rows(COMMENTS)) == (set(), [])
    with database.statement() as connection:
        made = connection.exec_driver_sql("SELECT pg_get_indexdef('celeriac.history_ended_badly'::regclass)")
        assert "(status, role, ((- id)))" in str(made.scalar_one())
