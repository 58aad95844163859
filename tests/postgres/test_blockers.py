"""Whose open transaction is in the way is told, with the cure, by whoever is asked; an ordinary caller's is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Connection, create_engine, text

from celeriac import Celeriac
from celeriac.alerts.judgement import judge
from celeriac.alerts.rules import RULES
from celeriac.cli.status import overview
from celeriac.dispatch.passes import Dispatcher
from celeriac.doctor import examine
from celeriac.enqueue.insert import enqueue
from celeriac.insights.fleet import condition, watched
from celeriac.insights.why import blockers as module
from celeriac.insights.why.blockers import Blocker, blockers, without_constants
from celeriac.insights.why.why import Why, why
from celeriac.roles.role import Role
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import registered
from tests.postgres.stages import enqueued, running
from tests.processes import Rows, until

Met = Callable[[], list[Blocker]]


@contextmanager
def psql(url: str, *statements: str) -> Iterator[Connection]:
    engine = create_engine(url, connect_args={"application_name": "psql"})
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
            yield connection
    finally:
        engine.dispose()


@pytest.fixture
def met(database: Database) -> Met:
    def ask() -> list[Blocker]:
        with database.statement() as connection:
            return blockers(connection)

    return ask


HOLDS = {
    "a running task": "UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'",
    "a policy": "UPDATE celeriac.account_policies SET weight = 2 WHERE account = 'a'",
    "a worker": "SELECT FROM celeriac.workers FOR UPDATE",
    "a table": "LOCK TABLE celeriac.tasks IN EXCLUSIVE MODE",
}


def told(app: Celeriac) -> list[str]:
    return [one.subject for one in overview(app)["wrong"] if one.name in ("held_lock", "locked_table")]


#: Seven seconds each; by day a row and a table.
BY_NIGHT = {"a policy", "a worker"}


@pytest.mark.parametrize(
    "what", [pytest.param(one, marks=pytest.mark.nightly("a row, too") if one in BY_NIGHT else ()) for one in HOLDS]
)
def test_who_holds_what_the_engine_needs_is_told_with_the_cure(
    app: Celeriac, database: Database, rows: Rows, met: Met, database_url: str, what: str
) -> None:
    running(database, new_task())
    rows("INSERT INTO account_policies (account, weight) VALUES ('a', 1)")
    assert met() == []
    with psql(database_url, HOLDS[what]) as operator:
        pid = operator.execute(text("SELECT pg_backend_pid()")).scalar_one()
        (one,) = until(met, "it to be open for two seconds")
        assert (one.pid, one.name, one.state) == (pid, "psql", "idle in transaction")
        assert one.login
        assert one.since is not None
        until(lambda: told(app) == [f"pid {pid}"], "it to be open for five seconds")
        first = examine(app)[0]
        assert (first.check, first.ok, str(pid) in first.says) == ("locks", False, True)
        assert f"pg_terminate_backend({pid})" in str(first.cure)
    assert met() == []


def test_whoever_holds_rows_of_any_table_but_callers_own_is_told(database: Database, database_url: str) -> None:
    """What is in the way is read in the catalogue: a table that is added is among it."""
    with database.statement() as connection:
        tables = {*connection.exec_driver_sql(TABLES).scalars()}
        others = sorted(tables - {*module.OF_CALLERS})
        assert tables > {*module.OF_CALLERS}
        for table in others:
            with psql(database_url, f"SELECT FROM celeriac.{table} FOR UPDATE"):
                (one,) = blockers(connection, longer_than=0.0)
                assert (one.tables, one.holds_tables) == ([table], False)


TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = CAST('celeriac' AS regnamespace) AND relkind IN ('r', 'p') AND NOT relispartition
"""


@pytest.mark.parametrize(
    "locks",
    ["CREATE INDEX slow ON celeriac.history_rest (role)", "LOCK TABLE celeriac.ready IN SHARE ROW EXCLUSIVE MODE"],
)
def test_what_keeps_all_writes_from_a_table_has_locked_all_of_it(
    database: Database, database_url: str, locks: str
) -> None:
    with psql(database_url, locks), database.statement() as connection:
        assert [one.holds_tables for one in blockers(connection, longer_than=0.0)] == [True]


def test_a_caller_whose_transaction_has_enqueued_is_in_nobodys_way(met: Met, database_url: str) -> None:
    with psql(database_url) as caller:
        enqueue(caller, [new_task(), new_task(lock_key="k")])
        caller.execute(text("SELECT pg_sleep(2.5)"))
        assert met() == []


#: A lock of a session whose transaction ended between the two looks: Postgres looks for the name here first.
ENDED_SINCE = """
CREATE TEMPORARY VIEW pg_locks AS
SELECT 'relation' AS locktype, d.oid AS database, CAST('celeriac.tasks' AS regclass) AS relation,
    CAST(NULL AS xid) AS transactionid, '7/7' AS virtualtransaction, CAST({pid} AS integer) AS pid,
    'RowExclusiveLock' AS mode, true AS granted
FROM pg_database d WHERE d.datname = current_database();
SET LOCAL search_path = pg_temp, pg_catalog, public
"""


def test_a_transaction_that_has_just_ended_is_in_nobodys_way(database: Database, database_url: str) -> None:
    """Locks and sessions are two readings: ten minutes of healthy load met one that had ended in between."""
    with psql(database_url) as idle, database.transaction() as connection:
        pid = idle.execute(text("SELECT pg_backend_pid()")).scalar_one()
        idle.commit()
        connection.exec_driver_sql(ENDED_SINCE.format(pid=pid))
        assert blockers(connection, only=["7/7"]) == []
        connection.exec_driver_sql("ROLLBACK")


def test_who_holds_rows_of_what_should_start_is_told_though_nobody_waits_for_them(
    app: Celeriac, database: Database, rows: Rows, database_url: str
) -> None:
    """A pass goes past them, so nobody waits: they are found by the rows themselves."""
    registered(rows, "work", "other")
    enqueued(database, *(new_task(account=account) for account in ("a", "b")), new_task("other"))
    with psql(database_url, "UPDATE celeriac.tasks SET kwargs = '{}' WHERE role = 'work'") as operator:
        pid = operator.execute(text("SELECT pg_backend_pid()")).scalar_one()
        until(lambda: told(app) == [f"pid {pid}"], "it to be open for five seconds")
        (one,) = [one for one in overview(app)["wrong"] if one.name == "held_lock"]
        assert (one.tasks, "those of 2 tasks that should go on" in one.says) == (2, True)
    assert told(app) == []


def test_why_names_who_has_locked_the_task(database: Database, rows: Rows, database_url: str) -> None:
    def asked(task: int) -> Why:
        with database.reading() as connection:
            return why(connection, task)

    registered(rows, "work")
    held, other = enqueued(database, new_task(), new_task())
    with psql(database_url, f"UPDATE celeriac.worker_tasks SET priority = 7 WHERE id = {held.id}") as operator:
        pid = operator.execute(text("SELECT pg_backend_pid()")).scalar_one()
        until(lambda: asked(held.id).reason == "locked_row", "it to be open for two seconds")
        with database.reading() as connection:
            answer = why(connection, held.id)
            assert f"pg_terminate_backend({pid})" in answer.headline
            assert why(connection, other.id).reason != "locked_row"


def test_a_policy_that_somebody_updates_stops_nobody_but_its_account(
    database: Database, rows: Rows, dispatcher: Dispatcher, database_url: str
) -> None:
    """Its row was waited for with the lock of the role's passes held: no account had anything meanwhile."""
    rows("INSERT INTO account_policies (account, paused) VALUES ('shut', true)")
    enqueued(database, new_task(account="shut"), new_task(account="open"))
    with psql(database_url, "UPDATE celeriac.account_policies SET paused = false WHERE account = 'shut'"):
        tickets = dispatcher.claim(Role(name="work"))
        assert sum(len(ticket.ids) for ticket in tickets) == 1
    tickets = dispatcher.claim(Role(name="work"))
    assert sum(len(ticket.ids) for ticket in tickets) == 1


def test_what_it_runs_is_told_without_constants() -> None:
    told = without_constants("UPDATE t\n  SET kwargs = '{\"password\": \"it''s\"}' WHERE id = 7")
    assert told == "UPDATE t SET kwargs = '…' WHERE id = 7"
    assert len(without_constants("x" * 1000)) <= module.LONGEST


def test_who_holds_a_lock_is_an_alert_with_the_cure(app: Celeriac, database_url: str, met: Met) -> None:
    with psql(database_url, HOLDS["a table"]) as operator:
        pid = operator.execute(text("SELECT pg_backend_pid()")).scalar_one()
        until(met, "it to be open for two seconds")
        with app.database.transaction() as connection:
            rule = replace(next(rule for rule in RULES if rule.name == "locked_table"), threshold=1)
            (above,) = judge(connection, app, [rule]).wrong
        assert f"pg_terminate_backend({pid})" in above.cure
        assert above.lasts > 0, "one look pages nobody"


#: A standby's slot, which no test has: Postgres looks for the name here first.
SLOT = """
CREATE TEMPORARY VIEW pg_replication_slots AS
SELECT CAST('standby' AS name) AS slot_name, xmin FROM celeriac.roles WHERE role = 'work';
SET LOCAL search_path = pg_temp, pg_catalog, public
"""

A_MINUTE = "INSERT INTO minutes (role, minute) SELECT 'work', now() - :ago * interval '1 minute'"


def test_a_replication_slot_keeps_what_is_dead(app: Celeriac, rows: Rows) -> None:
    """It has no time: it is as old as the oldest of the minutes that were counted since."""
    registered(rows, "work")
    with app.database.transaction() as connection:
        connection.exec_driver_sql(SLOT)
        assert watched.oldest_transaction(connection) is None
        for ago in (1, 15, 100):
            rows(A_MINUTE, ago=ago)
        assert watched.oldest_transaction(connection) == pytest.approx(98 * 60, abs=61)
        (one,) = condition.old_transactions(connection, 600.0)
        assert (one.id, one.state) == ("standby", "slot")
        connection.exec_driver_sql("ROLLBACK")
