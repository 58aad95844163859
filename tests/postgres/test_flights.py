"""An asyncio pool's filler and settler: at a failed statement nothing in hand is forgotten, and nothing runs twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy import Connection, text

from celeriac import Celeriac
from celeriac.dispatch.passes import Dispatcher
from celeriac.run import shared, start
from celeriac.run.filler import Filler
from celeriac.run.flight import Ask, SharedTicket
from celeriac.run.flights import Flights
from celeriac.run.settler import Settler
from celeriac.store.connections import Database
from tests.postgres.stages import claimed
from tests.processes import Rows, until

N = 20


class Failing:
    """Breaks off the connection in one call of a function: before it acts, or once it has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
        self.times = 0
        act = getattr(owner, name)

        def fail(*args: Any, **kwargs: Any) -> Any:
            self.times += 1
            if self.times > 1:
                return act(*args, **kwargs)
            done = act(*args, **kwargs) if after else None
            if isinstance(done, Connection):
                return done
            app = next((a for a in args if hasattr(a, "database")), None)
            assert app is not None
            break_off(app.database)
            return done

        monkeypatch.setattr(owner, name, fail)


def break_off(database: Database) -> None:
    """Raises what Postgres' end in the middle of a statement does."""
    with database.statement() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.fixture
def ran(app: Celeriac) -> list[str]:
    ran: list[str] = []

    @app.task(role="work", shared=False, bind=True)
    async def work(self: Any) -> str:
        await asyncio.sleep(0.01)
        ran.append(self.request.id)
        return "done"

    app.register_roles()
    return ran


@contextmanager
def flying(app: Celeriac, *, on_loop: bool = True) -> Iterator[Flights]:
    flights = Flights(app, 8, lambda: [app.roles.get("work").role], lambda *_: None, on_loop=on_loop)  # type: ignore[union-attr]
    flights.start()
    try:
        yield flights
        until(lambda: not flights.flights, "all to land")
    finally:
        flights.stop()


def completed(rows: Rows, n: int) -> Callable[[], bool]:
    return lambda: rows("SELECT status FROM worker_tasks") == [("completed",)] * n


@pytest.mark.parametrize("after", [False, True])
def test_a_pass_without_an_answer_is_asked_for(
    app: Celeriac, rows: Rows, ran: list[str], monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Whether it was committed or not."""
    Failing(monkeypatch, Dispatcher, "run_pass", after=after)
    ids = [result.id for result in app.tasks["work"].bulk(() for _ in range(N))]
    with flying(app):
        until(completed(rows, N), "all to end")
    assert sorted(ran) == sorted(ids)


@pytest.mark.parametrize("after", [False, True])
def test_outcomes_without_an_answer_are_written_again(
    app: Celeriac, rows: Rows, ran: list[str], monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    Failing(monkeypatch, Settler, "settle", after=after)
    ids = [result.id for result in app.tasks["work"].bulk(() for _ in range(N))]
    with flying(app):
        until(completed(rows, N), "all to end")
    assert sorted(ran) == sorted(ids)


def test_a_ticket_of_redis_whose_start_had_no_answer_starts_once(
    app: Celeriac, database: Database, rows: Rows, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app.tasks["work"].delay()
    ids, token = claimed(database)
    really = start.start
    asked: list[bool] = []

    def started(connection: Connection, *args: Any, again: bool = False, **kwargs: Any) -> Any:
        asked.append(again)
        done = really(connection, *args, again=again, **kwargs)
        if len(asked) == 1:
            break_off(database)
        return done

    monkeypatch.setattr(start, "start", started)
    became: list[dict[str, Any]] = []
    with flying(app) as flights:
        flights.filler.bring(Ask(app.roles.get("work").role, token, ids, became.append))  # type: ignore[union-attr]
        until(completed(rows, 1), "it to end")
        until(lambda: became, "the ticket's end")
    assert (len(ran), asked, became) == (1, [False, True], [{"ran": 1, "expired": 0}])


def test_what_a_handler_wrote_waits_with_its_outcome_for_somebodys_lock(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    rows("CREATE TABLE written (n integer)")
    wrote, locked = threading.Event(), threading.Event()

    @app.task(role="work", shared=False, bind=True)
    def work(self: Any) -> None:
        self.session.execute(text("INSERT INTO written VALUES (1)"))
        wrote.set()
        assert locked.wait(10)

    app.register_roles()
    work.delay()
    with flying(app) as flights:
        assert wrote.wait(10)
        (flight,) = flights.flights.values()
        with database.transaction() as other:
            other.exec_driver_sql("UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'")
            locked.set()
            until(lambda: flight.run.late_session is not None or flight.run.settled, "the outcome to meet the lock")
        until(completed(rows, 1), "it to end")
    assert rows("SELECT n FROM written") == [(1,)]
    assert rows("SELECT losses FROM worker_tasks") == [(0,)]


def test_what_cannot_begin_is_handed_back(
    app: Celeriac, rows: Rows, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its start: nothing says any more what it may do."""
    app.tasks["work"].bulk(() for _ in range(N))
    with flying(app) as flights:
        broke: list[None] = []
        really = flights.filler._those_that_begin

        def breaks(*args: Any) -> Any:
            broke.append(None)
            return 1 / 0 if len(broke) == 1 else really(*args)

        monkeypatch.setattr(flights.filler, "_those_that_begin", breaks)
        until(completed(rows, N), "all to end")
    assert len(ran) == N
    assert rows("SELECT DISTINCT losses FROM worker_tasks") == [(0,)]


def test_what_postgres_refuses_for_good_breaks_off_alone(
    app: Celeriac, rows: Rows, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (bad, *_) = [result.id for result in app.tasks["work"].bulk(() for _ in range(N))]
    really = Settler._write

    def refusing(self: Settler, connection: Connection, runs: Any, **kwargs: Any) -> Any:
        if any(run.task.task_id == bad and not run.task.losses for run in runs):
            connection.exec_driver_sql("SELECT 1 / 0")
        return really(self, connection, runs, **kwargs)

    monkeypatch.setattr(Settler, "_write", refusing)
    with flying(app):
        until(completed(rows, N), "all to end")
    assert rows("SELECT task_id FROM worker_tasks WHERE losses > 0") == [(bad,)]
    assert ran.count(bad) == 2


@pytest.mark.parametrize("threads", [0, 1])
def test_what_finds_no_thread_waits_for_one(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """A process may have no more of them than its system lets it."""
    refused: list[bool] = []
    adjust = ThreadPoolExecutor._adjust_thread_count

    def some(executor: ThreadPoolExecutor) -> None:
        if executor._thread_name_prefix.startswith("celeriac-handler") and len(refused) < 2:
            refused.append(True)
            if len(executor._threads) >= threads:
                raise RuntimeError("can't start new thread")
        adjust(executor)

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", some)

    @app.task(role="work", shared=False)
    def work() -> str:
        return "done"

    app.register_roles()
    work.bulk(() for _ in range(N))
    with flying(app):
        until(completed(rows, N), "all to end")
    assert len(refused) == 2
    assert rows("SELECT DISTINCT losses FROM worker_tasks") == [(0,)]


def test_a_cancel_and_a_lost_lease_end_a_coroutine(app: Celeriac, rows: Rows) -> None:
    because: list[Any] = []

    @app.task(role="work", shared=False, bind=True)
    async def work(self: Any) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            because.append(self.stopped_because)
            raise

    app.register_roles()
    one = work.delay()
    with flying(app):
        until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'running'"), "it to begin")
        app.cancel(one.id)
        until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'cancelled'"), "it to be cancelled")
        work.delay()
        until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'running'"), "another to begin")
        rows("UPDATE celeriac.tickets SET token = gen_random_uuid(), worker_id = 'another'")
        until(lambda: len(because) == 2, "it to be stopped")
        rows("DELETE FROM worker_tasks WHERE status = 'running'")
    assert because == ["cancelled", "lease lost"]


def test_a_lone_task_begins_without_a_pass(app: Celeriac, rows: Rows, ran: list[str]) -> None:
    """Its start is one statement; many at once take a pass, which shares slots out."""
    with flying(app) as flights:
        for n in range(1, 3):
            app.tasks["work"].delay()
            flights.filler.wake("work")
            until(completed(rows, n), "it to end")
        assert rows.one("SELECT count(*) FROM passes") == 0
        app.tasks["work"].bulk(() for _ in range(N))
        flights.filler.wake("work")
        until(completed(rows, 2 + N), "all to end")
    assert rows.one("SELECT count(*) FROM passes") != 0


class Gate:
    """Tasks that wait to be let go on. `most`: how many of them were under way at once."""

    def __init__(self, app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = asyncio.Event()
        self.began = self.most = self.under_way = 0

        @app.task(role="work", shared=False, batch_size=100, window=100)
        async def work() -> None:
            self.began += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await self.go_on.wait()
            self.under_way -= 1

        app.register_roles()
        app.tasks["work"].bulk(() for _ in range(N))
        monkeypatch.setattr(Filler, "_ahead", lambda _: AHEAD)

    def open(self, flights: Flights) -> None:
        flights.loop.call_soon_threadsafe(self.go_on.set)


AHEAD = 4


@pytest.fixture
def gate(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(app, monkeypatch)


def test_what_is_claimed_ahead_waits_for_a_slot(rows: Rows, app: Celeriac, gate: Gate) -> None:
    with flying(app) as flights:
        until(lambda: len(flights.waiting) == AHEAD, "some to wait for a slot")
        assert len(flights.current()) == flights.limit
        gate.open(flights)
        until(completed(rows, N), "all to end")
    assert gate.most == flights.limit


def test_what_waits_for_a_slot_is_handed_back_when_the_worker_stops(
    rows: Rows, app: Celeriac, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = threading.Event()
    monkeypatch.setattr(shared, "closed", stops.is_set)
    with flying(app) as flights:
        until(lambda: len(flights.waiting) == AHEAD, "some to wait for a slot")
        stops.set()
        flights.filler.woken.set()
        until(lambda: not flights.waiting, "them to be handed back, while the others run")
        gate.open(flights)
    assert gate.began == flights.limit
    assert rows("SELECT status, losses, count(*) FROM worker_tasks GROUP BY 1, 2 ORDER BY 1") == [
        ("completed", 0, flights.limit), ("pending", 0, N - flights.limit),
    ]  # fmt: skip


def test_what_waited_for_a_slot_beyond_its_lease_does_not_begin(
    rows: Rows, app: Celeriac, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedTicket, "lease_ends_soon", lambda ticket: gate.go_on.is_set() and not ticket.ran)
    with flying(app) as flights:
        until(lambda: len(flights.waiting) == AHEAD, "some to wait for a slot")
        gate.open(flights)
        until(lambda: not flights.waiting, "them not to begin")
        assert gate.began == flights.limit
        monkeypatch.undo()
        until(completed(rows, N), "all to end")
    assert gate.began == N


def test_more_slots_are_filled_with_what_waits(rows: Rows, app: Celeriac, gate: Gate) -> None:
    with flying(app) as flights:
        until(lambda: len(flights.waiting) == AHEAD, "some to wait for a slot")
        flights.resize(flights.limit + 1)
        until(lambda: gate.most == flights.limit, "the new slot to be filled")
        gate.open(flights)
        until(completed(rows, N), "all to end")


def test_nothing_of_a_tasks_context_reaches_the_one_that_gets_its_slot(
    rows: Rows, app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")
    seen: list[str] = []

    @app.task(role="work", shared=False, batch_size=100, window=100)
    async def work() -> None:
        seen.append(whose.get())
        whose.set("another's")
        await asyncio.sleep(0.2)

    app.register_roles()
    app.tasks["work"].bulk(() for _ in range(N))
    monkeypatch.setattr(Filler, "_ahead", lambda _: N)
    with flying(app):
        until(completed(rows, N), "all to end")
    assert seen == ["nobody's"] * N


def pending(rows: Rows) -> int:
    return int(rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'pending'"))


def test_what_waits_for_a_slot_in_vain_is_handed_back(
    rows: Rows, app: Celeriac, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with flying(app) as flights:
        until(lambda: len(flights.waiting) == AHEAD, "some to wait for a slot")
        monkeypatch.setattr(Filler, "_ahead", lambda _: 0)
        monkeypatch.setattr("celeriac.run.flights.PATIENCE", 0.0)
        until(lambda: pending(rows) == N - flights.limit, "them to be handed back")
        monkeypatch.setattr("celeriac.run.flights.PATIENCE", 1.0)
        gate.open(flights)
        until(completed(rows, N), "all to end")
    assert gate.began == N
    assert rows.one("SELECT max(losses) FROM worker_tasks") == 0


def test_what_waits_for_a_thread_in_vain_is_handed_back(
    rows: Rows, app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    @app.task(role="work", shared=False, batch_size=100, window=100)
    def work() -> None:
        assert go_on.wait(60)

    app.register_roles()
    app.tasks["work"].bulk(() for _ in range(N))
    monkeypatch.setattr(Filler, "_ahead", lambda _: AHEAD)
    with flying(app, on_loop=False) as flights:
        until(lambda: pending(rows) == N - flights.limit - AHEAD, "some to wait for a thread")
        monkeypatch.setattr(Filler, "_ahead", lambda _: 0)
        monkeypatch.setattr("celeriac.run.flights.PATIENCE", 0.0)
        until(lambda: pending(rows) == N - flights.limit, "them to be handed back")
        monkeypatch.setattr("celeriac.run.flights.PATIENCE", 1.0)
        go_on.set()
        until(completed(rows, N), "all to end")
    assert rows.one("SELECT max(losses) FROM worker_tasks") == 0


def test_a_locked_row_among_many_costs_no_slot(
    rows: Rows, app: Celeriac, gate: Gate, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Outcomes that meet the lock are tried by halves: each counts once."""
    with flying(app) as flights:
        until(lambda: gate.under_way == flights.limit, "all slots to be taken")
        with database.transaction() as other:
            other.exec_driver_sql("""UPDATE celeriac.worker_tasks SET priority = 7
                WHERE id = (SELECT min(id) FROM celeriac.worker_tasks WHERE status = 'running')""")
            gate.open(flights)
            until(lambda: "Somebody's lock is in the way" in caplog.text, "an outcome to meet the lock")
        until(completed(rows, N), "all to end")
        until(lambda: not flights.flights, "all to land")
        assert (flights.down, flights.filler.room()) == (0, flights.limit + AHEAD)


def test_a_coroutine_that_is_cancelled_before_it_begins_runs_later(app: Celeriac, rows: Rows) -> None:
    """As by a handler that cancels all asyncio tasks."""
    ran: list[str] = []

    @app.task(role="work", shared=False, bind=True)
    async def work(self: Any) -> None:
        ran.append(self.request.id)
        if len(ran) == 1:
            for other in asyncio.all_tasks() - {asyncio.current_task()}:
                other.cancel()

    app.register_roles()
    ids = [result.id for result in app.tasks["work"].bulk(() for _ in range(N))]
    with flying(app) as flights:
        until(completed(rows, N), "all to end")
        assert flights.in_air == 0
    assert sorted(ran) == sorted(ids)
    assert rows.one("SELECT max(losses) FROM worker_tasks") == 0
