"""The migrations lead to the declared schema, from wherever they start, and never block a running system."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.command import downgrade
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from celeriac.store import routines, tables
from celeriac.store.migrate import APPLICATION_TABLE, ENGINE_TABLE, ENGINE_VERSIONS, configuration, migrate, unapplied
from models import ROUTINES, Base
from tests.conftest import APPLICATION
from tests.postgres.catalog import catalog

ADDS_A_COLUMN = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "wide_0001", None, None, None


def upgrade():
    op.execute("ALTER TABLE worker_tasks ADD COLUMN colour text")
"""


@pytest.fixture
def empty(empty_url: str) -> Iterator[Engine]:
    engine = create_engine(empty_url)
    yield engine
    engine.dispose()


@pytest.fixture
def migrated(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def adds_a_column(tmp_path: Path) -> Path:
    """An application's migration that needs worker_tasks for itself."""
    (tmp_path / "wide_0001.py").write_text(ADDS_A_COLUMN)
    return tmp_path


def test_migrations_equal_the_declared_schema(empty: Engine, migrated: Engine) -> None:
    with empty.begin() as connection:
        tables.metadata.create_all(connection)
        Base.metadata.create_all(connection)
        for routine in (*routines.ROUTINES, *ROUTINES):
            connection.exec_driver_sql(routine)
        declared = catalog(connection)
    with migrated.begin() as connection:
        reached = catalog(connection)
    for kind in declared:
        assert reached[kind] == declared[kind]
    assert declared["columns"]
    assert declared["indexes"]
    assert declared["functions"]


def test_migrating_again_changes_nothing(migrated: Engine) -> None:
    with migrated.begin() as connection:
        before = catalog(connection)
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before


def test_each_migration_can_be_taken_back(migrated: Engine) -> None:
    with migrated.begin() as connection:
        before = catalog(connection)
        for versions, table in ((APPLICATION, APPLICATION_TABLE), (ENGINE_VERSIONS, ENGINE_TABLE)):
            config = configuration(versions)
            config.attributes.update(connection=connection, table=table, timeouts=(5, 60))
            downgrade(config, "base")
        assert set(inspect(connection).get_table_names()) == {APPLICATION_TABLE, ENGINE_TABLE}
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before


def test_weights_no_pass_could_go_by_are_mended(migrated: Engine) -> None:
    with migrated.begin() as connection:
        config = configuration(ENGINE_VERSIONS)
        config.attributes.update(connection=connection, table=ENGINE_TABLE, timeouts=(5, 60))
        downgrade(config, "celeriac_0009")
        connection.exec_driver_sql(
            "INSERT INTO account_policies (account, weight)"
            " VALUES ('a', 'NaN'), ('b', 'Infinity'), ('c', 1e-9), ('d', 3)"
        )
    migrate(migrated)
    with migrated.begin() as connection:
        weights = connection.exec_driver_sql("SELECT weight FROM account_policies ORDER BY account").scalars()
        assert list(weights) == [1, 1e6, 1e-6, 3]


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
        reader.execute(text("SELECT count(*) FROM worker_tasks"))
        with pytest.raises(OperationalError, match="lock timeout"):
            migrate(empty, adds_a_column, lock_timeout=0.1, statement_timeout=5)
        with empty.connect() as another:
            assert another.execute(text("SELECT count(*) FROM worker_tasks")).scalar_one() == 0
            assert unapplied(another, adds_a_column) == {"wide_0001"}
    migrate(empty, adds_a_column, lock_timeout=0.1, statement_timeout=5)
    with empty.connect() as connection:
        assert unapplied(connection, adds_a_column) == set()


def test_a_migration_that_takes_too_long_gives_up(empty: Engine, adds_a_column: Path) -> None:
    migrate(empty)
    with empty.connect() as reader:
        reader.execute(text("SELECT count(*) FROM worker_tasks"))
        with pytest.raises(OperationalError, match="statement timeout"):
            migrate(empty, adds_a_column, lock_timeout=5, statement_timeout=0.1)


def test_what_is_not_applied_is_told(empty: Engine) -> None:
    with empty.connect() as connection:
        assert unapplied(connection, APPLICATION) == {
            *(f"celeriac_{version:04}" for version in range(1, 12)),
            *(f"app_{version:04}" for version in range(1, 5)),
        }


def test_the_timeouts_end_with_the_migration(migrated: Engine) -> None:
    migrate(migrated, lock_timeout=0.1, statement_timeout=0.1)
    with migrated.connect() as connection:
        assert connection.execute(text("SELECT current_setting('lock_timeout')")).scalar_one() == "0"
