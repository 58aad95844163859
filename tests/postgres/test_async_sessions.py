"""`self.session` of an `async def` handler: what it writes commits with the outcome, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from celeriac import Celeriac, Task
from celeriac.errors import CeleriacError, LeaseLost
from celeriac.run.arrive import run_ticket
from celeriac.run.flight import Ask
from celeriac.run.flights import Flights
from celeriac.settings import Settings
from celeriac.store import awaited
from tests.postgres.stages import claimed
from tests.processes import Rows, until

pytestmark = pytest.mark.filterwarnings("ignore:Exception raised outside body")

#: How a commit of what was written is refused, or raises, at the commit.
AT_COMMIT = """
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON written DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION at_commit()
"""

KEPT, SHARED, TRACED = "a thread's loop", "a shared loop", "a shared loop, traced"

everywhere = pytest.mark.parametrize("ran", [KEPT, SHARED, TRACED], indirect=True)

Body = Callable[[Any], Awaitable[Any]]


Ran = Callable[..., tuple[Any, ...]]


async def write(session: AsyncSession, n: int = 1) -> None:
    await session.execute(text("INSERT INTO written VALUES (:n)"), {"n": n})


@pytest.fixture(autouse=True)
def table(rows: Rows) -> None:
    rows("CREATE TABLE written (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")


@contextmanager
def flights_of(app: Celeriac, limit: int = 8, *, roles: Sequence[str] = ()) -> Iterator[Flights]:
    """An asyncio pool's, which take what they are brought, and what there is of these roles."""
    served = [app.roles.get(name).role for name in roles]  # type: ignore[union-attr]
    flights = Flights(app, limit, lambda: served, lambda *_: None, on_loop=True)
    flights.start()
    try:
        yield flights
    finally:
        flights.stop()


def fly(app: Celeriac, flights: Flights) -> list[dict[str, Any]]:
    """All that waits, in one ticket; what became of it is in the list once it is over."""
    role, became = app.roles.get("work").role, []  # type: ignore[union-attr]
    ids, token = claimed(app.database, "work")
    flights.filler.bring(Ask(role, token, ids, became.append))
    return became


@pytest.fixture
def ran(app: Celeriac, rows: Rows, request: pytest.FixtureRequest) -> Ran:
    """Runs one call of a body once: its status, losses and error; what is written; how many follow-ups there are."""

    def run(body: Body, **options: Any) -> tuple[Any, ...]:
        way = getattr(request, "param", SHARED)
        hooks = {"on_success": lambda *_: None} if way == TRACED else {}

        @app.task(role="next", shared=False, prompt=False)
        def following() -> None: ...

        base = type("Base", (Task,), hooks)

        @app.task(role="work", bind=True, shared=False, prompt=False, base=base, **{"max_rounds": 1, **options})
        async def work(self: Any) -> Any:
            following.delay()
            return await body(self)

        app.register_roles()
        work.delay()
        if way == KEPT:
            run_ticket(app, "work", *claimed(app.database, "work"))
        else:
            with flights_of(app) as flights:
                became = fly(app, flights)
                until(lambda: became, "its end")
        ((status, losses, error),) = rows("SELECT status, losses, error_message FROM worker_tasks WHERE role = 'work'")
        follow_ups = rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'next'")
        return status, losses, error, [n for (n,) in rows("SELECT n FROM written ORDER BY n")], follow_ups

    return run


@everywhere
def test_what_it_writes_commits_with_its_outcome(ran: Ran, rows: Rows) -> None:
    async def body(self: Any) -> str:
        assert isinstance(self.session, AsyncSession)
        assert self.session is self.session
        await write(self.session)
        assert rows("SELECT FROM written") == []
        return "done"

    assert ran(body) == ("completed", 0, None, [1], 1)


@everywhere
def test_what_it_writes_goes_with_its_failure(ran: Ran) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        raise ValueError("no")

    assert ran(body) == ("failed", 0, "ValueError: no", [], 0)


def test_an_attempt_that_is_retried_takes_with_it_what_it_wrote(ran: Ran) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        self.retry(countdown=60)

    assert ran(body)[0::3] == ("pending", [])


def test_what_may_fail_may_stand_in_a_savepoint(ran: Ran) -> None:
    async def body(self: Any) -> None:
        with suppress(DBAPIError):
            async with self.session.begin_nested():
                await write(self.session, 1)
                await self.session.execute(text("SELECT 1 / 0"))
        await write(self.session, 2)

    assert ran(body)[0::3] == ("completed", [2])


def test_a_handler_that_goes_on_after_its_statement_failed_fails_and_is_not_lost(ran: Ran) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        with suppress(DBAPIError):
            await self.session.execute(text("SELECT 1 / 0"))

    status, losses, error, written, _ = ran(body)
    assert (status, losses, written) == ("failed", 0, [])
    assert "async with self.session.begin_nested()" in error


@pytest.mark.parametrize("way", ["COMMIT", "/* all */ rollback ;", "commit", "caught", "driver"])
def test_a_transaction_that_is_ended_by_hand_is_refused_and_told_what_to_use(ran: Ran, way: str) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        if way == "commit":
            await self.session.commit()
        elif way == "caught":
            with suppress(CeleriacError):
                await self.session.execute(text("COMMIT"))
            raise ValueError("then this")
        elif way == "driver":
            raw = await (await self.session.connection()).get_raw_connection()
            await raw.driver_connection.commit()
        else:
            await self.session.execute(text(way))

    status, losses, error, written, _ = ran(body)
    assert (status, losses) == ("failed", 0)
    assert error == "ValueError: then this" if way == "caught" else "async with self.early_commit()" in error
    assert way == "driver" or written == []


@pytest.mark.parametrize(
    "says",
    [
        "RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'",
        "RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'",
        "RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = '55P03'",
        "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10)",
    ],
)
def test_a_commit_that_fails_through_no_fault_of_its_own_is_a_loss(ran: Ran, rows: Rows, says: str) -> None:
    rows(AT_COMMIT.format(says))

    async def body(self: Any) -> None:
        await write(self.session)

    assert ran(body, max_losses=5)[0:2] == ("pending", 1)
    assert rows("SELECT FROM written") == []


@everywhere
def test_a_constraint_that_fails_at_the_commit_is_its_failure(ran: Ran) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        await write(self.session)

    status, losses, error, written, follow_ups = ran(body)
    assert (status, losses, written, follow_ups) == ("failed", 0, [], 0)
    assert "UniqueViolation" in error


@everywhere
def test_a_connection_that_is_lost_meanwhile_is_no_failure(ran: Ran, rows: Rows) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        pid = (await self.session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        rows("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        await write(self.session)

    assert ran(body, max_losses=5)[0:2] == ("pending", 1)


def test_a_run_that_lost_its_row_writes_nothing(ran: Ran, rows: Rows) -> None:
    async def body(self: Any) -> None:
        await write(self.session)
        rows("UPDATE worker_tasks SET status = 'pending', token = NULL WHERE role = 'work'")

    assert ran(body)[0::3] == ("pending", [])


def test_an_early_commit_is_seen_while_the_task_goes_on_and_stays(ran: Ran, rows: Rows) -> None:
    async def body(self: Any) -> None:
        async with self.early_commit() as session:
            await write(session)
        assert rows("SELECT n FROM written") == [(1,)]
        await self.progress({"written": 1})
        await write(self.session, 2)
        raise ValueError("no")

    assert ran(body)[0::3] == ("failed", [1])
    assert rows("SELECT progress FROM worker_tasks WHERE role = 'work'") == [({"written": 1},)]


def test_an_early_commit_of_a_run_that_lost_its_row_writes_nothing(ran: Ran, rows: Rows) -> None:
    raised: list[Exception] = []

    async def body(self: Any) -> None:
        rows("UPDATE worker_tasks SET status = 'pending', token = NULL WHERE role = 'work'")
        try:
            async with self.early_commit() as session:
                await write(session)
        except LeaseLost as error:
            raised.append(error)
            raise

    assert ran(body)[3] == []
    assert len(raised) == 1


def test_without_psycopg_it_says_what_to_install(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "find_spec", lambda _: None)

    async def body(self: Any) -> None:
        await write(self.session)

    assert "pip install 'celeriac[asyncio]'" in ran(body)[2]


def test_an_outcome_that_somebody_has_locked_is_written_later_with_what_it_wrote(app: Celeriac, rows: Rows) -> None:
    wrote, locked = asyncio.Event(), asyncio.Event()

    @app.task(role="work", bind=True, shared=False, prompt=False)
    async def work(self: Any) -> None:
        await write(self.session)
        wrote.set()
        await locked.wait()

    app.register_roles()
    work.delay()
    with flights_of(app) as flights:
        became = fly(app, flights)
        until(wrote.is_set, "it to write")
        (flight,) = flights.flights.values()
        with app.database.transaction() as other:
            other.exec_driver_sql("UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'")
            flights.loop.call_soon_threadsafe(locked.set)
            until(lambda: flight.run.late_session is not None or flight.run.settled, "the outcome to meet the lock")
            assert rows("SELECT FROM written") == []
        until(lambda: became, "its end")
    assert rows("SELECT n FROM written") == [(1,)]
    assert rows("SELECT status, losses FROM worker_tasks") == [("completed", 0)]


N, MOST = 30, 4


def test_so_many_have_a_connection_at_once_and_none_waits_for_itself(
    database_url: str, redis_url: str, rows: Rows
) -> None:
    """Each takes a second one for an early commit while it has its first."""
    settings = Settings(database_url=database_url, redis_url=redis_url, async_sessions=MOST)
    app = Celeriac("bounded", settings=settings, set_as_current=False)
    now, most = 0, 0

    @app.task(role="work", bind=True, shared=False)
    async def work(self: Any, n: int) -> None:
        nonlocal now, most
        await write(self.session, n)
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.01)
        async with self.early_commit() as session:
            await write(session, N + n)
        now -= 1

    app.register_roles()
    work.bulk((n,) for n in range(N))
    with flights_of(app, N, roles=["work"]):
        until(lambda: rows("SELECT status, count(*) FROM worker_tasks GROUP BY 1") == [("completed", N)], "all to end")
    app.publisher.close()
    app.database.dispose()
    assert rows.one("SELECT count(*) FROM written") == 2 * N
    assert most == MOST


def test_a_cancel_takes_back_what_was_written_and_leaves_a_connection_that_serves(app: Celeriac, rows: Rows) -> None:
    @app.task(role="work", bind=True, shared=False, prompt=False)
    async def work(self: Any, how: str) -> str | None:
        await write(self.session)
        if how == "waits":
            await self.session.execute(text("SELECT pg_sleep(600)"))
        return how

    app.register_roles()
    with flights_of(app) as flights:
        one = work.delay("waits")
        became = fly(app, flights)
        until(lambda: rows("SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND state = 'active'"
                           " AND pid <> pg_backend_pid()"), "it to wait")  # fmt: skip
        app.cancel(one.id)
        until(lambda: became, "its end")
        assert rows("SELECT status FROM worker_tasks") == [("cancelled",)]
        assert rows("SELECT FROM written") == []
        work.delay("goes on")
        became = fly(app, flights)
        until(lambda: became, "its end")
    assert rows("SELECT n FROM written") == [(1,)]
