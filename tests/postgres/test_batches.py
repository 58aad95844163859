"""A ticket's rows in their child process: whatever breaks, none stays with a process that goes on without it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, make_url

from celeriac import Celeriac
from celeriac.run import lease, start
from celeriac.run.ticket import Batch
from celeriac.run.watch import LOOK_EVERY
from celeriac.settle.settler import Settler
from celeriac.store.connections import Database
from celeriac.worker import shared
from tests.conftest import Servers
from tests.postgres.stages import claimed
from tests.processes import Rows, until

Away = Callable[[], AbstractContextManager[None]]

STATUS = "SELECT status FROM worker_tasks ORDER BY id"
OTHERS = "SELECT FROM worker_tasks WHERE id > (SELECT min(id) FROM worker_tasks) FOR NO KEY UPDATE"


@pytest.fixture
def away(servers: Servers, database_url: str) -> Away:
    """`with away():` the database is not to be had."""
    name = make_url(database_url).database

    @contextmanager
    def gone() -> Iterator[None]:
        servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        servers.execute(f"SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = '{name}'")
        try:
            yield
        finally:
            servers.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    return gone


@pytest.fixture
def run(app: Celeriac, database: Database) -> Callable[[int], dict[str, Any]]:
    """Runs a ticket of so many tasks of the role `work` in this process."""

    def run_ticket(n: int) -> dict[str, Any]:
        return Batch(app, app.roles.of(app.tasks["work"])).run(*claimed(database, n=n))

    return run_ticket


Run = Callable[[int], dict[str, Any]]


class Exited(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(os, "_exit", leave)


# -- starting ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool, Callable[[], object]], None]:
    """The connection is lost at this verb's first call: once what it did is committed, or before it did anything."""

    def lose(verb: str, is_committed: bool, meanwhile: Callable[[], object] = lambda: None) -> None:
        real = getattr(start, verb)

        def act(connection: Connection, *given: Any, **named: Any) -> None:
            monkeypatch.setattr(start, verb, real)
            if is_committed:
                real(connection, *given, **named)
            meanwhile()
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

        monkeypatch.setattr(start, verb, act)

    return lose


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("verb", ["start", "expire"])
def test_a_connection_that_is_lost_while_a_ticket_starts_leaves_no_row_behind(
    app: Celeriac, rows: Rows, run: Run, lose_answer: Callable[..., None], verb: str, is_committed: bool
) -> None:
    @app.task(role="work", shared=False, eager=False, lock_by="key")
    def work(key: str) -> None: ...

    work.bulk([("a",), ("a",), ("b",)])
    rows("UPDATE worker_tasks SET expires_at = now() - interval '1 s' WHERE id = (SELECT min(id) FROM worker_tasks)")
    lose_answer(verb, is_committed)
    assert run(2) == {"ran": 1, "lost": 1}
    assert rows("SELECT status, waits_for FROM worker_tasks ORDER BY id") == [
        ("cancelled", None), ("pending", None), ("completed", None)
    ]  # fmt: skip


@pytest.mark.usefixtures("exits")
def test_a_process_whose_start_got_no_answer_ends_if_postgres_stays_away(
    app: Celeriac, run: Run, away: Away, lose_answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(role="work", shared=False, eager=False)
    def work() -> None: ...

    work.delay()
    monkeypatch.setattr("celeriac.store.failures.PATIENCE", 0.1)
    with ExitStack() as lasting:
        lose_answer("start", True, lambda: lasting.enter_context(away()))
        with pytest.raises(Exited):
            run(1)


# -- time limits -------------------------------------------------------------------------------------------------------


def test_a_time_limit_counts_from_when_a_task_begins_and_until_then_none_is_late(
    app: Celeriac, rows: Rows, run: Run
) -> None:
    """Eight of 0.1 s, each within its 0.5 s."""
    limits, late = [], []

    @app.task(role="work", shared=False, eager=False, timeout=0.5, max_retries=0)
    def work() -> None:
        limits.append(rows.one("SELECT count(*) FROM worker_tasks WHERE deadline_at > now() + interval '0.3 s'"))
        with app.database.transaction() as beating:
            late.extend(lease.renew(beating, shared.worker_id(), [os.getpid()], 0.0))
        time.sleep(0.1)

    work.bulk([()] * 8)
    assert run(8) == {"ran": 8}
    assert limits == [1] * 8, "one at a time"
    assert [row for row in late if row.overdue] == []
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]


def test_a_task_under_a_time_limit_that_is_no_longer_this_process_s_does_not_begin(
    app: Celeriac, rows: Rows, run: Run
) -> None:
    @app.task(role="work", shared=False, eager=False, timeout=60.0)
    def work(n: int) -> None:
        rows("UPDATE worker_tasks SET token = gen_random_uuid() WHERE kwargs = '{\"n\": 2}'")

    work.bulk([(1,), (2,), (3,)])
    assert run(3) == {"ran": 2}
    assert rows(STATUS) == [("completed",), ("running",), ("completed",)]


@pytest.mark.parametrize(("timeout", "asked"), [(None, 0), (60.0, 3)])
def test_a_time_limit_costs_one_statement_for_each_but_the_first_of_a_ticket_and_none_costs_nothing(
    app: Celeriac, run: Run, timeout: float | None, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(role="work", shared=False, eager=False, timeout=timeout)
    def work() -> None: ...

    said: list[str] = []
    event.listen(app.database._verbs, "before_cursor_execute", lambda *given: said.append(given[2]))
    monkeypatch.setattr("celeriac.run.ticket.SETTLE_EVERY", 60.0)
    work.bulk([()] * 4)
    said.clear()
    run(4)
    assert sum("deadline_at = clock_timestamp()" in statement for statement in said) == asked


# -- handing back ------------------------------------------------------------------------------------------------------


def test_what_waits_behind_a_long_task_is_handed_back_once_postgres_is_there_again(
    app: Celeriac, database: Database, rows: Rows, run: Run, away: Away
) -> None:
    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None:
        if n == 1:
            with away():
                time.sleep(2 * LOOK_EVERY)
            rows.engine.dispose()
            until(lambda: rows(STATUS)[1:] == [("pending",)], "the other to wait again")

    work.bulk([(1,), (2,)])
    assert run(2) == {"ran": 1}
    assert rows(STATUS) == [("completed",), ("pending",)]


def test_no_row_begins_whose_hand_back_got_no_answer(app: Celeriac, rows: Rows, run: Run, away: Away) -> None:
    """It may have been committed: the row may be somebody else's."""
    began = []

    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None:
        began.append(n)
        if n == 1:
            with away():
                time.sleep(2 * LOOK_EVERY)

    work.bulk([(1,), (2,)])
    run(2)
    rows.engine.dispose()
    assert began == [1]
    assert rows(STATUS) == [("completed",), ("pending",)]


def test_a_row_that_is_locked_when_it_is_to_be_handed_back_is_handed_back_a_moment_later(
    app: Celeriac, database: Database, rows: Rows, run: Run
) -> None:
    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None:
        if n == 1:
            with database.transaction() as beating:
                beating.exec_driver_sql(OTHERS)
                time.sleep(2 * LOOK_EVERY)
            until(lambda: rows(STATUS)[1:] == [("pending",)], "the other to wait again")

    work.bulk([(1,), (2,)])
    run(2)
    assert rows(STATUS) == [("completed",), ("pending",)]


def test_a_worker_that_backs_off_begins_no_row_that_it_could_not_hand_back_at_once(
    app: Celeriac, database: Database, rows: Rows, run: Run
) -> None:
    let_go = threading.Event()

    def beat() -> None:
        with database.transaction() as beating:
            beating.exec_driver_sql(OTHERS)
            shared.back_off()
            let_go.wait(2 * LOOK_EVERY)

    beating = threading.Thread(target=beat)

    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None:
        beating.start()
        until(shared.closed, "the worker to back off")

    work.bulk([(1,), (2,)])
    try:
        assert run(2) == {"ran": 1}
    finally:
        let_go.set()
        shared.back_off(on=False)
        beating.join()
    assert rows(STATUS) == [("completed",), ("pending",)]


def test_outcomes_the_watch_could_not_settle_are_settled_at_the_end_of_the_run(
    app: Celeriac, rows: Rows, run: Run, away: Away, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("celeriac.run.ticket.SETTLE_EVERY", 60.0)
    monkeypatch.setattr("celeriac.store.failures.PATIENCE", 0.1)

    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None:
        if n == 2:
            with away():
                until(lambda: "its watch could not" in caplog.text, "the watch to give a settle up")

    work.bulk([(1,), (2,)])
    assert run(2) == {"ran": 2}
    rows.engine.dispose()
    assert rows(STATUS) == [("completed",), ("completed",)]


# -- breaking off ------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something of ours raises after each task."""

    def refuse(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Settler, "settle", refuse)


@pytest.mark.usefixtures("exits", "broken")
def test_a_ticket_that_breaks_off_lets_its_rows_go(app: Celeriac, database: Database, rows: Rows, run: Run) -> None:
    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None: ...

    work.bulk([(1,), (2,)])
    with pytest.raises(ZeroDivisionError):
        run(2)
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)] * 2


@pytest.mark.usefixtures("exits", "broken")
def test_a_ticket_that_breaks_off_lets_go_of_a_row_that_is_locked_for_a_moment(
    app: Celeriac, database: Database, rows: Rows, run: Run
) -> None:
    begun = threading.Event()

    def beat() -> None:
        with database.transaction() as beating:
            beating.exec_driver_sql(OTHERS)
            begun.set()
            time.sleep(LOOK_EVERY)

    beating = threading.Thread(target=beat)

    @app.task(role="work", shared=False, eager=False)
    def work(n: int) -> None:
        if n == 2:
            beating.start()
            begun.wait()

    work.bulk([(1,), (2,)])
    with pytest.raises(ZeroDivisionError):
        run(2)
    beating.join()
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)] * 2


@pytest.mark.usefixtures("exits", "broken")
@pytest.mark.parametrize("obstacle", ["Postgres is away", "a row is locked for long"])
def test_a_process_that_cannot_let_its_rows_go_ends_with_them(
    app: Celeriac, database: Database, run: Run, away: Away, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.run.ticket.LOOKS", 2)
    with ExitStack() as lasting:

        @app.task(role="work", shared=False, eager=False)
        def work(n: int) -> None:
            if n == 1:
                return
            if obstacle == "Postgres is away":
                lasting.enter_context(away())
            else:
                lasting.enter_context(database.transaction()).exec_driver_sql(OTHERS)

        work.bulk([(1,), (2,)])
        with pytest.raises(Exited):
            run(2)
