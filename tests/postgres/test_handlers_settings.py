"""What a handler sets in its transaction or on its connection concerns neither its outcome nor the tasks after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.run.arrive import run_ticket
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows

ENDED = "SELECT status, losses, error_message FROM worker_tasks ORDER BY id DESC LIMIT 1"

Ran = Callable[[Callable[[Any], Any]], tuple[Any, ...]]


@pytest.fixture
def ran(app: Celeriac, database: Database, rows: Rows) -> Ran:
    """Runs a body as a handler, each time in this process: its row."""
    rows("CREATE TABLE mine (n int)")
    bodies: list[Callable[[Any], Any]] = []

    @app.task(role="work", bind=True, shared=False, max_rounds=1, max_losses=1)
    def work(self: Any) -> Any:
        return bodies[-1](self)

    app.register_roles()

    def run(body: Callable[[Any], Any]) -> tuple[Any, ...]:
        bodies.append(body)
        work.delay()
        run_ticket(app, "work", *claimed(database, "work"))
        return rows(ENDED)[0]

    return run


def running(*statements: str) -> Callable[[Any], Any]:
    def body(self: Any) -> None:
        for statement in statements:
            self.session.execute(text(statement))

    return body


@pytest.fixture
def slow_outcomes(rows: Rows) -> Iterator[None]:
    """To write an outcome takes longer than a handler allows its own statements."""
    rows(
        "CREATE FUNCTION naps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.6); RETURN OLD; END $$"
    )
    rows("CREATE TRIGGER naps BEFORE DELETE ON celeriac.tickets FOR EACH ROW EXECUTE FUNCTION naps()")
    yield
    rows("DROP TRIGGER naps ON celeriac.tickets")
    rows("DROP FUNCTION naps()")


WROTE = "INSERT INTO mine VALUES (1)"


@pytest.mark.parametrize(
    "said",
    [
        "SET LOCAL ROLE pg_monitor", "SET ROLE pg_monitor", "SET LOCAL SESSION AUTHORIZATION pg_monitor",
        "SET LOCAL search_path = ''", "SET LOCAL statement_timeout = '300ms'", "SET statement_timeout = '300ms'",
        "SELECT set_config('role', 'pg_monitor', true)", "SET CONSTRAINTS ALL IMMEDIATE",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("slow_outcomes")
def test_an_outcome_is_written_whoever_its_handler_was_and_whatever_it_allowed(rows: Rows, ran: Ran, said: str) -> None:
    assert ran(running(WROTE, said)) == ("completed", 0, None)
    assert rows.one("SELECT count(*) FROM mine") == 1


def test_a_handler_that_only_reads_may_say_so(ran: Ran) -> None:
    assert ran(running("SET TRANSACTION READ ONLY", "SELECT 1")) == ("completed", 0, None)


def test_a_handler_that_reads_after_it_wrote_cannot_and_fails_once(rows: Rows, ran: Ran) -> None:
    status, losses, message = ran(running(WROTE, "SET TRANSACTION READ ONLY"))
    assert (status, losses) == ("failed", 0)
    assert "read-only after it had written" in message
    assert rows("SELECT FROM mine") == []


def test_where_all_is_read_only_it_is_no_handlers_failure(rows: Rows, database: Database, ran: Ran) -> None:
    """As after Postgres has changed its server."""
    name = rows.one("SELECT current_database()")

    def body(self: Any) -> None:
        rows(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        database.engine.dispose()
        self.session.execute(text("SELECT 1"))

    try:
        status, losses, _ = ran(body)
    finally:
        with Rows(database.url).engine.connect() as connection:
            connection.exec_driver_sql("SET default_transaction_read_only = off")
            connection.exec_driver_sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert (status, losses) == ("pending", 0)


#: What is left on a connection, and what the next handler would see of it.
LEFT = {
    "SET statement_timeout = '77ms'": "SELECT current_setting('statement_timeout') <> '77ms'",
    "SET search_path = pg_catalog": "SELECT current_setting('search_path') <> 'pg_catalog'",
    "  /* first */ set session timezone = 'Asia/Tokyo'": "SELECT current_setting('timezone') <> 'Asia/Tokyo'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY": "SELECT current_setting('transaction_read_only') = 'off'",
    "SET ROLE pg_monitor": "SELECT current_user <> 'pg_monitor'",
    "SELECT set_config('app.tenant', 'ann', false)": "SELECT coalesce(current_setting('app.tenant', true), '') = ''",
    "SELECT pg_advisory_lock(7117)": "SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND "
    "objid = 7117)",
    "CREATE TEMP TABLE scratch (n int)": "SELECT to_regclass('pg_temp.scratch') IS NULL",
    "LISTEN news": "SELECT NOT EXISTS (SELECT pg_listening_channels())",
    "PREPARE asked AS SELECT 1": "SELECT NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name = 'asked')",
    "SELECT 1; SET application_name = 'mine'": "SELECT current_setting('application_name') <> 'mine'",
}


@pytest.mark.parametrize("left", LEFT)
def test_nothing_that_a_handler_leaves_on_its_connection_is_there_for_the_next(ran: Ran, left: str) -> None:
    seen: list[bool] = []
    assert ran(running(left)) == ("completed", 0, None)
    assert ran(lambda self: seen.append(self.session.execute(text(LEFT[left])).scalar_one()))[0] == "completed"
    assert seen == [True]


def test_so_it_is_of_a_coroutines_session(app: Celeriac, database: Database, rows: Rows) -> None:
    seen: list[Any] = []

    @app.task(role="waits", bind=True, shared=False, max_rounds=1, max_losses=1)
    async def waits(self: Any, said: str) -> None:
        seen.append(
            (await self.session.execute(text("SELECT current_user || current_setting('DateStyle')"))).scalar_one()
        )
        await self.session.execute(text(said))

    app.register_roles()
    for said in ("SET ROLE pg_monitor", "SET DateStyle = 'German'", "SET TRANSACTION READ ONLY", "SELECT 1"):
        waits.delay(said)
        run_ticket(app, "waits", *claimed(database, "waits"))
        assert rows(ENDED) == [("completed", 0, None)], said
    assert len(set(seen)) == 1


def test_so_it_is_after_an_early_commit(ran: Ran) -> None:
    seen: list[Any] = []

    def early(self: Any) -> None:
        with self.early_commit() as session:
            session.execute(text("SET search_path = pg_catalog"))

    assert ran(early)[0] == "completed"
    assert ran(lambda self: seen.append(self.session.execute(text("SHOW search_path")).scalar_one()))[0] == "completed"
    assert seen != ["pg_catalog"]


@pytest.mark.parametrize(
    "said",
    [
        "SET LOCAL statement_timeout = '5s'", "UPDATE mine SET n = 2", "SELECT pg_advisory_xact_lock(7)",
        "SELECT set_config('app.tenant', 'ann', true)", "SELECT ' LISTEN to this'", "SET TRANSACTION READ WRITE",
        "CREATE TABLE temporary_one (n int)", "SELECT n AS prepared FROM mine",
    ],
)  # fmt: skip
def test_a_handler_that_leaves_nothing_costs_no_connection(database: Database, ran: Ran, said: str) -> None:
    backends: list[int] = []
    for _ in range(2):
        ran(lambda self: backends.append(self.session.execute(text("SELECT pg_backend_pid()")).scalar_one()))
        with Session(database.engine) as session:
            session.execute(text(re.sub("temporary_one", f"temporary_{len(backends)}", said)))
            session.commit()
    assert backends[0] == backends[1]


def test_what_a_block_of_its_session_wrote_commits_with_the_outcome(rows: Rows, ran: Ran) -> None:
    def body(self: Any) -> None:
        with self.session as session:
            session.execute(text(WROTE))
        with suppress(ValueError), self.session.begin_nested():
            self.session.execute(text(WROTE))
            raise ValueError

    assert ran(body) == ("completed", 0, None)
    assert rows.one("SELECT count(*) FROM mine") == 1


def test_what_a_block_wrote_that_failed_is_undone(rows: Rows, ran: Ran) -> None:
    def body(self: Any) -> None:
        with suppress(ValueError), self.session as session:
            session.execute(text(WROTE))
            raise ValueError
        self.session.execute(text("INSERT INTO mine VALUES (2)"))

    assert ran(body) == ("completed", 0, None)
    assert rows("SELECT n FROM mine") == [(2,)]


def test_a_session_that_is_kept_is_refused_to_the_next_task(rows: Rows, ran: Ran) -> None:
    kept: list[Any] = []

    def keeps(self: Any) -> None:
        kept.append(self.session)
        self.session.execute(text(WROTE))

    assert ran(keeps)[0] == "completed"
    status, losses, message = ran(lambda _: kept[0].execute(text(WROTE)) and None)
    assert (status, losses) == ("failed", 0)
    assert "take self.session anew in each task" in message
    assert rows.one("SELECT count(*) FROM mine") == 1


def test_so_they_are_of_coroutines(app: Celeriac, database: Database, rows: Rows) -> None:
    rows("CREATE TABLE mine (n int)")
    kept: list[Any] = []

    @app.task(role="waits", bind=True, shared=False, max_rounds=1, max_losses=1)
    async def waits(self: Any) -> None:
        kept.append(self.session)
        async with kept[0] as session:
            await session.execute(text(WROTE))

    app.register_roles()
    for ended in (("completed", 0, None), ("failed", 0)):
        waits.delay()
        run_ticket(app, "waits", *claimed(database, "waits"))
        assert rows(ENDED)[0][: len(ended)] == ended
    assert rows.one("SELECT count(*) FROM mine") == 1
