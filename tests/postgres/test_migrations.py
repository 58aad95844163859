"""The migrations lead to one schema, however often they run, and never block a running system."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.command import downgrade
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import IntegrityError, OperationalError

from celeriac.errors import ConfigurationError
from celeriac.insights import counting
from celeriac.store.migrate import (
    APPLICATION_TABLE,
    ENGINE,
    Branch,
    apply_routines,
    configuration,
    migrate,
    unapplied,
)
from models import ROUTINES, Base
from tests.conftest import APPLICATION
from tests.postgres.catalog import catalog
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
def empty(empty_url: str) -> Iterator[Engine]:
    engine = create_engine(empty_url)
    yield engine
    engine.dispose()


@pytest.fixture
def migrated(empty: Engine) -> Engine:
    """As an installation has it: the tests' own template differs in a function."""
    migrate(empty, APPLICATION)
    return empty


@pytest.fixture
def declared(clone: Callable[[], str]) -> Iterator[Engine]:
    """Beside the engine's, an application's schema as its models have it rather than its migrations."""
    engine = create_engine(clone())
    with engine.begin() as connection:
        take_back(connection, Branch(APPLICATION, APPLICATION_TABLE))
        Base.metadata.create_all(connection)
        for routine in (*ROUTINES, *documented()):
            connection.exec_driver_sql(routine.replace("%", "%%"))
    yield engine
    engine.dispose()


def documented() -> list[str]:
    """What the documents name, of which no model knows."""
    documents = ScriptDirectory.from_config(configuration(APPLICATION)).get_revision("app_0005")
    names = ("WORKER_TASKS", "CRAWL_JOBS", "CAPACITY", "RECOVER")
    return [getattr(documents.module, name) for name in names]


def take_back(connection: Connection, branch: Branch) -> None:
    config = configuration(branch.versions)
    config.attributes.update(connection=connection, branch=branch, timeouts=(5, 60))
    downgrade(config, "base")


@pytest.fixture
def adds_a_column(tmp_path: Path) -> Path:
    """An application's migration that needs a table of the engine's for itself."""
    (tmp_path / "wide_0001.py").write_text(ADDS_A_COLUMN)
    return tmp_path


def test_the_application_s_migrations_equal_its_declared_schema(declared: Engine, migrated: Engine) -> None:
    with declared.begin() as connection:
        expected = catalog(connection, "public")
    with migrated.begin() as connection:
        reached = catalog(connection, "public")
    for kind in expected:
        assert reached[kind] == expected[kind]
    assert expected["columns"]
    assert expected["indexes"]
    assert expected["functions"]


def test_migrating_again_changes_nothing(migrated: Engine) -> None:
    with migrated.begin() as connection:
        before = catalog(connection)
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before
    assert all(before.values())


def test_routines_that_are_applied_again_equal_themselves(migrated: Engine) -> None:
    with migrated.begin() as connection:
        before = catalog(connection)
        apply_routines(connection)
        assert catalog(connection) == before


def test_a_routine_of_before_with_fewer_parameters_is_gone_after_a_migration(migrated: Engine) -> None:
    """Beside one whose other parameters have defaults, a call would fit both."""
    with migrated.begin() as connection:
        before = catalog(connection)
        connection.exec_driver_sql(
            "CREATE FUNCTION celeriac.backlog(for_role text) RETURNS SETOF boolean LANGUAGE sql STABLE AS 'SELECT true'"
        )
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before
        assert counting.due(connection, "work") == 0


def test_a_routine_somebody_changed_is_the_code_s_again_after_a_migration(migrated: Engine) -> None:
    with migrated.begin() as connection:
        before = catalog(connection)
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION celeriac.held_back(of_role text, of_account text) RETURNS SETOF boolean"
            " LANGUAGE sql STABLE AS 'SELECT true'"
        )
        assert catalog(connection) != before
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before


def test_each_migration_can_be_taken_back(migrated: Engine) -> None:
    with migrated.begin() as connection:
        before = catalog(connection)
        for branch in (Branch(APPLICATION, APPLICATION_TABLE), ENGINE):
            take_back(connection, branch)
        left = catalog(connection)
        names = {line.partition(" | ")[0] for kind in ("relations", "columns") for line in left[kind]}
        assert names == {APPLICATION_TABLE, "celeriac.version"}
        assert (left["functions"], left["triggers"]) == (set(), set())
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before


def test_history_has_a_partition_for_each_of_the_days_to_come(migrated: Engine) -> None:
    with migrated.begin() as connection:
        wanted = connection.exec_driver_sql("""
            SELECT 'history_' || to_char((now() AT TIME ZONE 'UTC') + n * interval '1 day', 'YYYYMMDD')
            FROM generate_series(0, 7) n""").scalars()
        found = connection.exec_driver_sql("""
            SELECT relname FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
            WHERE inhparent = 'celeriac.history'::regclass""").scalars()
        assert set(found) == {*wanted, "history_rest"}


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


def test_what_is_not_applied_is_told(empty: Engine) -> None:
    with empty.connect() as connection:
        assert unapplied(connection, APPLICATION) == {
            "celeriac_0001",
            *(f"app_{version:04}" for version in range(1, 7)),
        }


def test_the_timeouts_end_with_the_migration(migrated: Engine) -> None:
    migrate(migrated, lock_timeout=0.1, statement_timeout=0.1)
    with migrated.connect() as connection:
        assert connection.execute(text("SELECT current_setting('lock_timeout')")).scalar_one() == "0"


@pytest.mark.parametrize("table", ["celeriac.version", APPLICATION_TABLE])
def test_a_database_that_is_newer_than_the_code_is_left_alone(migrated: Engine, table: str) -> None:
    with migrated.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {table} SET version_num = 'later_0001'")
        before = catalog(connection)
    says = f"the database is newer than this code, which does not know later_0001 of its table {table}"
    with pytest.raises(ConfigurationError, match=says):
        migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before
        with pytest.raises(ConfigurationError, match=says):
            unapplied(connection, APPLICATION)
