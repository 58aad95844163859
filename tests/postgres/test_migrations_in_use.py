"""Migrations of a database that is in use: they take turns, give up, and keep nobody waiting."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DataError, IntegrityError, OperationalError

from celeriac.store.migrate import migrate, unapplied
from celeriac.store.routines.apply import replace_stale
from tests.conftest import APPLICATION
from tests.processes import until

ADDS_A_COLUMN = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "wide_0001", None, None, None


def upgrade():
    op.execute("ALTER TABLE celeriac.tasks ADD COLUMN colour text")
"""

ADDS_AN_INDEX = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "unique_0001", None, None, None
afterwards = (
    "DROP INDEX CONCURRENTLY IF EXISTS names_once",
    "CREATE UNIQUE INDEX CONCURRENTLY names_once ON names (name)",
    "ALTER TABLE names VALIDATE CONSTRAINT named",
)


def upgrade():
    op.execute("CREATE TABLE names (name text)")
    op.execute("INSERT INTO names VALUES ('a'), ('a')")
    op.execute("ALTER TABLE names ADD CONSTRAINT named CHECK (name IS NOT NULL) NOT VALID")
"""

#: Whether the index is whole, and the constraint validated.
WHOLE = """SELECT (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('names_once')),
    (SELECT convalidated FROM pg_constraint WHERE conname = 'named')"""

BUILDING = """SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'CREATE UNIQUE%%' AND wait_event_type = 'Lock'"""


@pytest.fixture
def adds_a_column(tmp_path: Path) -> Path:
    """An application's migration that needs a table of the engine's for itself."""
    (tmp_path / "wide_0001.py").write_text(ADDS_A_COLUMN)
    return tmp_path


def test_two_migrations_at_once_take_turns(empty: Engine) -> None:
    errors: list[BaseException] = []

    def go() -> None:
        try:
            migrate(empty, APPLICATION)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with empty.begin() as connection:
        assert unapplied(connection, APPLICATION) == set()


def test_a_migration_behind_a_long_transaction_gives_up(empty: Engine, adds_a_column: Path) -> None:
    migrate(empty)
    with empty.connect() as reader:
        reader.execute(text("SELECT count(*) FROM celeriac.tasks"))
        with pytest.raises(OperationalError, match="lock timeout"):
            migrate(empty, adds_a_column, lock_timeout=0.1, statement_timeout=5)
        with empty.connect() as another:
            assert another.execute(text("SELECT count(*) FROM celeriac.tasks")).scalar_one() == 0
            assert unapplied(another, adds_a_column) == {"wide_0001"}
    migrate(empty, adds_a_column, lock_timeout=0.1, statement_timeout=5)
    with empty.connect() as connection:
        assert unapplied(connection, adds_a_column) == set()


def test_what_a_migration_does_afterwards_is_begun_anew_where_it_failed(empty: Engine, tmp_path: Path) -> None:
    (tmp_path / "unique_0001.py").write_text(ADDS_AN_INDEX)
    with pytest.raises(IntegrityError, match="names_once"):
        migrate(empty, tmp_path)
    with empty.begin() as connection:
        assert connection.exec_driver_sql(WHOLE).one() == (False, False)
        assert unapplied(connection, tmp_path) == set()
        connection.exec_driver_sql("DELETE FROM names WHERE ctid = (SELECT min(ctid) FROM names)")
    migrate(empty, tmp_path)
    with empty.begin() as connection:
        assert connection.exec_driver_sql(WHOLE).one() == (True, True)
        assert connection.exec_driver_sql("SELECT count(*) FROM celeriac.afterwards").scalar_one() == 0


SLEEPS = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "slow_0001", None, None, None


def upgrade():
    op.execute("SELECT pg_advisory_lock_shared(4711)")
    op.execute("{}")
"""

WAITS = """SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%%4711%%'"""

#: Of an engine's table and of its views, with what readers and writers of the tasks need.
USES = """SET lock_timeout = '1 s'; INSERT INTO celeriac.worker_tasks (task_id, role) VALUES ('a', 'work');
    SELECT count(*) FROM celeriac.worker_tasks"""


def test_while_an_application_migrates_nobody_waits_for_the_engine(empty: Engine, tmp_path: Path) -> None:
    """Not even where the engine's part had everything to make."""
    (tmp_path / "slow_0001.py").write_text(SLEEPS.format("SELECT pg_advisory_unlock_shared(4711)"))
    with ThreadPoolExecutor(1) as executor, empty.connect() as another:
        another.execution_options(isolation_level="AUTOCOMMIT")
        another.exec_driver_sql("SELECT pg_advisory_lock(4711)")
        migrating = executor.submit(migrate, empty, tmp_path)
        until(lambda: another.exec_driver_sql(WAITS).scalar_one(), "the application to migrate")
        assert another.exec_driver_sql(USES).scalar_one() == 1
        another.exec_driver_sql("SELECT pg_advisory_unlock(4711)")
        migrating.result(30)


def test_an_application_that_cannot_migrate_leaves_the_engine_migrated(empty: Engine, tmp_path: Path) -> None:
    (tmp_path / "slow_0001.py").write_text(SLEEPS.format("SELECT 1 / 0"))
    with pytest.raises(DataError, match="division by zero"):
        migrate(empty, tmp_path)
    with empty.connect() as connection:
        assert unapplied(connection, tmp_path) == {"slow_0001"}


def test_a_routine_that_is_as_it_was_is_not_replaced(empty: Engine) -> None:
    """Each replacement of a view would wait for its readers, and keep all others waiting."""
    migrate(empty)
    with empty.connect() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM celeriac.worker_tasks")
        reader.exec_driver_sql("LOCK TABLE celeriac.account_policies IN ROW EXCLUSIVE MODE")
        migrate(empty, lock_timeout=0.1)
    with empty.begin() as connection:
        connection.exec_driver_sql(CHANGED)
        assert replace_stale(connection) == ["routine today"]
        assert replace_stale(connection) == []
        connection.exec_driver_sql("UPDATE celeriac.routines SET text = 'before' WHERE name = 'view unfinished'")
        assert {"view unfinished", "view worker_tasks", "view v_worker_capacity"} <= set(replace_stale(connection))


#: By somebody with psql.
CHANGED = """CREATE OR REPLACE FUNCTION celeriac.today() RETURNS date LANGUAGE sql AS 'SELECT current_date'"""


@pytest.fixture
def in_use(empty: Engine, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A table that a caller's open transaction has written to, and a migration that builds an index on it afterwards.

    Called, it commits.
    """
    made, _, _ = ADDS_AN_INDEX.partition("def upgrade")
    (tmp_path / "unique_0001.py").write_text(f"{made}def upgrade(): ...\n")
    migrate(empty)
    with empty.connect() as caller:
        caller.exec_driver_sql("CREATE TABLE names (name text, CONSTRAINT named CHECK (name IS NOT NULL) NOT VALID)")
        caller.commit()
        caller.exec_driver_sql("INSERT INTO names VALUES ('a')")
        yield caller.commit


def test_what_a_migration_does_afterwards_keeps_nobody_waiting(
    empty: Engine, in_use: Callable[[], None], tmp_path: Path
) -> None:
    """It waits itself, for as long as it takes."""
    with ThreadPoolExecutor(1) as executor, empty.connect() as another:
        another.execution_options(isolation_level="AUTOCOMMIT")
        migrating = executor.submit(migrate, empty, tmp_path, lock_timeout=0.1)
        until(lambda: another.exec_driver_sql(BUILDING).scalar_one(), "the index to wait for the caller")
        another.exec_driver_sql("SET lock_timeout = '1 s'; INSERT INTO names VALUES ('b')")
        in_use()
        migrating.result(30)
        assert another.exec_driver_sql(WHOLE).one() == (True, True)


def test_two_migrations_at_once_build_an_index_beside_each_other(
    empty: Engine, in_use: Callable[[], None], tmp_path: Path
) -> None:
    """Whoever waits for its turn has no snapshot that the index would wait for."""
    with ThreadPoolExecutor(2) as executor, empty.connect() as another:
        another.execution_options(isolation_level="AUTOCOMMIT")
        both = [executor.submit(migrate, empty, tmp_path) for _ in range(2)]
        until(lambda: another.exec_driver_sql(BUILDING).scalar_one(), "the index to wait for the caller")
        waits = "SELECT count(*) > 1 FROM pg_stat_activity WHERE query LIKE '%%pg_try_advisory%%celeriac migrate%%'"
        until(lambda: another.exec_driver_sql(waits).scalar_one(), "the other to wait for its turn")
        in_use()
        for migrating in both:
            migrating.result(30)
        assert another.exec_driver_sql(WHOLE).one() == (True, True)


def test_a_migration_that_takes_too_long_gives_up(empty: Engine, adds_a_column: Path) -> None:
    migrate(empty)
    with empty.connect() as reader:
        reader.execute(text("SELECT count(*) FROM celeriac.tasks"))
        with pytest.raises(OperationalError, match="statement timeout"):
            migrate(empty, adds_a_column, lock_timeout=5, statement_timeout=0.1)


def test_a_current_database_is_seen_to_be_so_without_alembic(empty: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import is a third of what a worker's start takes of a processor."""
    migrate(empty, APPLICATION)
    monkeypatch.setitem(sys.modules, "alembic.runtime.migration", None)
    with empty.connect() as connection:
        assert unapplied(connection, APPLICATION) == set()
