"""The migrations lead to one schema, however often they run, and never block a running system."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from alembic.command import downgrade, upgrade
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from celeriac.errors import ConfigurationError
from celeriac.insights.tasks import counting
from celeriac.store.drift import drift
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
    script = ScriptDirectory.from_config(configuration(APPLICATION))
    names = {
        "app_0005": ("WORKER_TASKS", "CRAWL_JOBS", "CAPACITY", "RECOVER"), "app_0008": ("INSERTED", "TRIGGER"),
        "app_0009": ("SCHEDULED_JOBS",),
    }  # fmt: skip
    return [getattr(script.get_revision(one).module, name) for one, some in names.items() for name in some]


def take_back(connection: Connection, branch: Branch, to: str = "base") -> None:
    config = configuration(branch.versions)
    config.attributes.update(connection=connection, branch=branch, timeouts=(5, 60))
    downgrade(config, to)


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


def test_no_queue_is_left_for_a_release_that_has_none(migrated: Engine) -> None:
    with migrated.begin() as connection:
        connection.exec_driver_sql("""
            INSERT INTO celeriac.intake (task) VALUES ('{"role": "index", "queue": "slow"}');
            INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, options, declared)
            VALUES ('said', 'index', '* * * * *', '{"queue": "slow", "cap": 1}', '{"options": {"queue": "slow"}}'),
                ('own', 'index', '* * * * *', '{"queue": "slow"}', NULL);
            INSERT INTO celeriac.ready (seg, role, account, priority, due_at, id)
            VALUES (0, 'index,slow', '', 0, now(), 1)
        """)
        take_back(connection, ENGINE, "celeriac_0005")
        seen = connection.exec_driver_sql("""
            SELECT (SELECT task FROM celeriac.intake), (SELECT role FROM celeriac.ready),
                jsonb_object_agg(name, jsonb_build_array(options, declared)) FROM celeriac.scheduled_jobs
        """).one()
        jobs = {"said": [{"cap": 1}, {"options": {}}], "own": [{}, None]}
        assert tuple(seen) == ({"role": "index"}, "index", jobs)


def test_no_release_that_would_lose_links_of_long_chains_is_gone_back_to(migrated: Engine) -> None:
    with migrated.begin() as connection:
        connection.exec_driver_sql("""
            INSERT INTO celeriac.chain_rests (chain, place, workflow, links)
            SELECT gen_random_uuid(), 0, name, '[{}]' FROM unnest('{long,over}'::text[]) AS name;
            INSERT INTO celeriac.tasks (task_id, role, workflow, headers) VALUES
                ('next', 'index', 'long', '{"canvas": {"chain": [{"task": "celeriac.rest_of_chain"}, {"task": "a"}]}}'),
                ('last', 'index', 'over', '{"canvas": {"chain": [{"task": "a"}]}}')
        """)
    with pytest.raises(DBAPIError, match="long chains are under way"), migrated.begin() as connection:
        take_back(connection, ENGINE, "celeriac_0007")
    with migrated.begin() as connection:
        connection.exec_driver_sql("DELETE FROM celeriac.tasks WHERE task_id = 'next'")
        take_back(connection, ENGINE, "celeriac_0007")
        assert connection.exec_driver_sql("SELECT to_regclass('celeriac.chain_rests')").scalar_one() is None


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


def test_what_is_not_applied_is_told(empty: Engine) -> None:
    with empty.connect() as connection:
        assert unapplied(connection, APPLICATION) == {
            "celeriac_0001",
            "celeriac_0002",
            "celeriac_0003",
            "celeriac_0004",
            "celeriac_0005",
            "celeriac_0006",
            "celeriac_0007",
            "celeriac_0008",
            "celeriac_0009",
            "celeriac_0010",
            *(f"app_{version:04}" for version in range(1, 10)),
        }


def test_the_timeouts_end_with_the_migration(migrated: Engine) -> None:
    migrate(migrated, lock_timeout=0.1, statement_timeout=0.1)
    with migrated.connect() as connection:
        assert connection.execute(text("SELECT current_setting('lock_timeout')")).scalar_one() == "0"


#: What a later release's migrations leave, by the first revision that runs on them.
LATER = "UPDATE celeriac.version SET version_num = 'later_0001', runs_from = %(runs_from)s"


def test_a_release_runs_on_a_later_schema_that_says_so_and_leaves_it_alone(migrated: Engine) -> None:
    with migrated.begin() as connection:
        connection.exec_driver_sql(LATER, {"runs_from": "celeriac_0007"})
        connection.exec_driver_sql("ALTER TABLE celeriac.tasks ADD later integer")
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION celeriac.held_back(of_role text, of_account text) RETURNS SETOF boolean"
            " LANGUAGE sql STABLE AS 'SELECT true WHERE false'"
        )
        before = catalog(connection)
        assert unapplied(connection, APPLICATION) == set()
        assert drift(connection) == []
    migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before


def test_a_migration_that_this_code_cannot_run_on_says_so(migrated: Engine) -> None:
    with migrated.begin() as connection:
        connection.exec_driver_sql(LATER, {"runs_from": "later_0001"})
        with pytest.raises(ConfigurationError, match="the database is newer than this code"):
            unapplied(connection, APPLICATION)


@pytest.mark.parametrize("table", ["celeriac.version", APPLICATION_TABLE])
def test_a_database_that_is_newer_than_the_code_is_left_alone(migrated: Engine, table: str) -> None:
    with migrated.begin() as connection:
        connection.exec_driver_sql("UPDATE celeriac.version SET runs_from = NULL")
        connection.exec_driver_sql(f"UPDATE {table} SET version_num = 'later_0001'")
        before = catalog(connection)
    says = f"the database is newer than this code, which does not know later_0001 of its table {table}"
    with pytest.raises(ConfigurationError, match=says):
        migrate(migrated, APPLICATION)
    with migrated.begin() as connection:
        assert catalog(connection) == before
        with pytest.raises(ConfigurationError, match=says):
            unapplied(connection, APPLICATION)


def test_an_application_s_own_scheduled_jobs_stays_as_it_is(migrated: Engine) -> None:
    branch = Branch(APPLICATION, APPLICATION_TABLE)
    with migrated.begin() as connection:
        config = configuration(APPLICATION)
        config.attributes.update(connection=connection, branch=branch, timeouts=(5, 60))
        downgrade(config, "app_0008")
        connection.exec_driver_sql("CREATE TABLE scheduled_jobs (theirs integer)")
        upgrade(config, "app_0009")
        connection.exec_driver_sql("SELECT theirs FROM public.scheduled_jobs")
        downgrade(config, "app_0008")
        connection.exec_driver_sql("SELECT theirs FROM public.scheduled_jobs")
