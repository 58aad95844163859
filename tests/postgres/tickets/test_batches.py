"""A ticket's rows in their child process: whatever breaks, none stays with a process that goes on without it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, event

from celeriac import Celeriac
from celeriac.run import settler, shared, start
from celeriac.run.watch import LOOK_EVERY
from celeriac.store.connections import Database
from tests.postgres.stages import looked
from tests.postgres.tickets.conftest import STATUS, TICKET, Away, Exited, Run
from tests.processes import Rows, until


@pytest.fixture
def lose_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool, Callable[[], object]], None]:
    """The connection is lost at this verb's first call: once what it did is committed, or before it did anything."""

    def lose(verb: str, is_committed: bool, meanwhile: Callable[[], object] = lambda: None) -> None:
        module = {"start": start, "settle": settler}[verb]
        real = getattr(module, verb)

        def act(connection: Connection, *given: Any, **named: Any) -> None:
            monkeypatch.setattr(module, verb, real)
            if is_committed:
                real(connection, *given, **named)
            meanwhile()
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

        monkeypatch.setattr(module, verb, act)

    return lose


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("verb", ["start", "settle"])
def test_a_connection_that_is_lost_while_a_ticket_starts_or_settles_leaves_no_row_behind(
    app: Celeriac, rows: Rows, run: Run, lose_answer: Callable[..., None], verb: str, is_committed: bool
) -> None:
    @app.task(role="work", shared=False, prompt=False, lock_by="key")
    def work(key: str) -> None: ...

    work.bulk([("a",), ("a",), ("b",)])
    rows("UPDATE worker_tasks SET expires_at = now() - interval '1 s' WHERE waits_for IS NULL")
    lose_answer(verb, is_committed)
    assert run(2) == {"ran": 0, "expired": 2}
    assert looked(app.database) == [], "the settle itself handed the key over"
    assert rows("SELECT status, waits_for FROM worker_tasks ORDER BY id") == [
        ("cancelled", None), ("pending", None), ("cancelled", None)
    ]  # fmt: skip
    assert rows("SELECT kind FROM task_events") == [("expired",), ("expired",)]
    assert rows("SELECT FROM tickets") == []


@pytest.mark.usefixtures("exits")
def test_a_process_whose_start_got_no_answer_ends_if_postgres_stays_away(
    app: Celeriac, run: Run, away: Away, lose_answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(role="work", shared=False, prompt=False)
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
    """Eight of 0.1 s, each within its 0.5 s: what the parent knows of this process meanwhile."""
    grace = app.settings.time_limit_grace
    told: list[list[tuple[int, float]]] = []

    @app.task(role="work", shared=False, prompt=False, timeout=0.5, max_retries=0)
    def work() -> None:
        now = time.monotonic()
        told.append([(limit.task, limit.ends - now - grace) for limit in shared.limits([os.getpid()])])
        time.sleep(0.1)

    work.bulk([()] * 8)
    assert run(8) == {"ran": 8}
    assert [task for ((task, _),) in told] == [row for (row,) in rows("SELECT id FROM worker_tasks ORDER BY id")]
    assert all(0.3 < left <= 0.5 for ((_, left),) in told), "one at a time, each from its own beginning"
    assert shared.limits([os.getpid()]) == [], "nor is one late that has ended"
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]


TAKE_AWAY = "UPDATE worker_tasks SET token = gen_random_uuid() WHERE kwargs = '{\"n\": 2}'"


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_task_that_was_taken_from_this_process_behind_a_long_one_does_not_begin(
    app: Celeriac, rows: Rows, run: Run, timeout: float | None
) -> None:
    began = []

    @app.task(role="work", shared=False, prompt=False, timeout=timeout)
    def work(n: int) -> None:
        began.append(n)
        if n == 1:
            rows(TAKE_AWAY)
            until(lambda: rows(STATUS)[2:] == [("pending",)], "the third to wait again")

    work.bulk([(1,), (2,), (3,)])
    assert run(3) == {"ran": 1}
    assert began == [1]
    assert rows(STATUS) == [("completed",), ("running",), ("pending",)]


def test_a_task_that_was_taken_from_this_process_a_moment_before_it_began_changes_nothing(
    app: Celeriac, rows: Rows, run: Run
) -> None:
    @app.task(role="work", shared=False, prompt=False, timeout=60.0)
    def work(n: int) -> None:
        if n == 1:
            rows(TAKE_AWAY)

    work.bulk([(1,), (2,), (3,)])
    assert run(3) == {"ran": 3}
    assert rows(STATUS) == [("completed",), ("running",), ("completed",)]
    assert rows("SELECT kind, from_status FROM task_events") == [("late_finish", "running")]


def test_a_time_limit_costs_no_statement(app: Celeriac, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    event.listen(app.database._verbs, "before_cursor_execute", lambda *given: said.append(given[2]))
    # As in a worker, whose parent looks for changes.
    monkeypatch.setattr("celeriac.run.shared.limits_as_of", lambda: 1)
    app.limited.of("work")
    prepared = "PREPARE"  # once a connection, whatever runs
    monkeypatch.setattr("celeriac.run.ticket.SETTLE_EVERY", 60.0)

    @app.task(role="work", shared=False, prompt=False, chunk=4, window=100)
    def work() -> None: ...

    counted = []
    for call in (work, work.using(timeout=60.0)):
        for _ in range(4):
            call.delay()
        said.clear()
        assert run(4) == {"ran": 4}
        counted.append(len([statement for statement in said if prepared not in statement]))
    assert counted[0] == counted[1] < 4


# -- handing back ------------------------------------------------------------------------------------------------------


def test_what_waits_behind_a_long_task_is_handed_back_once_postgres_is_there_again(
    app: Celeriac, database: Database, rows: Rows, run: Run, away: Away
) -> None:
    @app.task(role="work", shared=False, prompt=False)
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

    @app.task(role="work", shared=False, prompt=False)
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


def test_a_task_whose_ticket_is_locked_when_it_is_to_be_handed_back_is_handed_back_a_moment_later(
    app: Celeriac, database: Database, rows: Rows, run: Run
) -> None:
    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None:
        if n == 1:
            with database.transaction() as beating:
                beating.exec_driver_sql(TICKET)
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
            beating.exec_driver_sql(TICKET)
            shared.back_off()
            let_go.wait(2 * LOOK_EVERY)

    beating = threading.Thread(target=beat)

    @app.task(role="work", shared=False, prompt=False)
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

    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None:
        if n == 2:
            with away():
                until(lambda: "its watch could not" in caplog.text, "the watch to give a settle up")

    work.bulk([(1,), (2,)])
    assert run(2) == {"ran": 2}
    rows.engine.dispose()
    assert rows(STATUS) == [("completed",), ("completed",)]
