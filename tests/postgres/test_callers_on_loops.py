"""Callers with an event loop: every verb of theirs, in whatever transaction of theirs, and never in the loop's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from celery.exceptions import TimeoutError as CeleryTimeoutError
from psycopg.rows import dict_row
from psycopg2.extras import RealDictCursor
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from celeriac import BadArguments, Celeriac, CeleriacError, ConfigurationError, NotReady, Task
from celeriac.errors import IdTaken
from celeriac.roles import registry
from tests.postgres.workflows import look_once, run_all
from tests.processes import Rows

STATUSES = "SELECT status FROM worker_tasks"


@pytest.fixture
def work(app: Celeriac) -> Task[[int], int]:
    @app.task(role="work", shared=False, prompt=False, chunk=500)
    def work(n: int) -> int:
        return n + 1

    @app.task(role="keyed", shared=False, prompt=False, chunk=500, lock_by="n", unique_by="n")
    def keyed(n: int) -> int:
        return n

    app.register_roles()
    return work


@pytest.fixture
def kicked(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The roles that were to look early, in order."""
    names: list[str] = []
    monkeypatch.setattr(app.enqueuer, "_kick", lambda name, _=None: names.append(name))
    return names


def run(of: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(of, 30)

    return asyncio.run(main())


# -- transactions of a loop's ------------------------------------------------------------------------------------------

#: What executes a statement, and how its transaction ends.
Opened = tuple[Any, Callable[[str], Awaitable[Any]]]


def of(url: str, driver: str) -> str:
    return make_url(url).set(drivername=driver).render_as_string(hide_password=False)


@asynccontextmanager
async def session_of(url: str, driver: str) -> AsyncIterator[Opened]:
    engine = create_async_engine(of(url, f"postgresql+{driver}"))
    async with AsyncSession(engine) as session:
        yield session, lambda statement: _of_session(session, statement)
    await engine.dispose()


async def _of_session(session: AsyncSession, statement: str) -> None:
    if statement in ("COMMIT", "ROLLBACK"):
        await (session.commit() if statement == "COMMIT" else session.rollback())
    else:
        connection = await session.connection()
        await connection.exec_driver_sql(statement)


@asynccontextmanager
async def connection_of(url: str, driver: str) -> AsyncIterator[Opened]:
    engine = create_async_engine(of(url, f"postgresql+{driver}"))
    async with engine.connect() as connection:
        yield connection, lambda statement: _of_connection(connection, statement)
    await engine.dispose()


async def _of_connection(connection: AsyncConnection, statement: str) -> None:
    if statement in ("COMMIT", "ROLLBACK"):
        await (connection.commit() if statement == "COMMIT" else connection.rollback())
    else:
        await connection.exec_driver_sql(statement)


@asynccontextmanager
async def bare_psycopg(url: str, _: str) -> AsyncIterator[Opened]:
    async with await psycopg.AsyncConnection.connect(of(url, "postgresql"), row_factory=dict_row) as connection:
        yield connection, connection.execute


@asynccontextmanager
async def bare_asyncpg(url: str, _: str) -> AsyncIterator[Opened]:
    """With codecs of the caller's for JSON, as most have."""

    async def dress(connection: Any) -> None:
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=repr, decoder=eval)

    made = asyncpg.create_pool(of(url, "postgresql"), init=dress, max_size=1, min_size=1)
    async with made as pool, pool.acquire() as connection:
        await connection.execute("BEGIN")
        yield connection, connection.execute


ON_LOOPS = {
    "AsyncSession, psycopg": (session_of, "psycopg"),
    "AsyncSession, asyncpg": (session_of, "asyncpg"),
    "AsyncConnection, psycopg": (connection_of, "psycopg"),
    "AsyncConnection, asyncpg": (connection_of, "asyncpg"),
    "psycopg": (bare_psycopg, ""),
    "asyncpg": (bare_asyncpg, ""),
}


async def _use(url: str, way: str, app: Celeriac, rows: Rows) -> None:
    """What is rolled back, also to a savepoint, leaves nothing, and what is committed is there then, not sooner."""
    work, keyed = app.tasks["work"], app.tasks["keyed"]
    make, driver = ON_LOOPS[way]
    async with make(url, driver) as (transaction, execute):
        await execute("SAVEPOINT mine")
        await work.using(session=transaction).adelay(1)
        await execute("ROLLBACK TO SAVEPOINT mine")
        enqueued = await work.using(session=transaction).adelay(2)
        assert (enqueued.is_new, bool(enqueued.row_id)) == (True, True)
        await keyed.using(session=transaction).adelay(3)
        again = await keyed.using(session=transaction, priority=7, countdown=60).adelay(3)
        assert again.is_new is False
        await work.aapply_async((4,), countdown=60, session=transaction)
        await work.abulk([(n,) for n in range(5, 9)], session=transaction)
        await keyed.abulk([{"n": n} for n in (9, 10, 9)], session=transaction, timeout=2.5)
        await work.using(session=transaction, task_id="mine").adelay(11)
        mine = await work.using(session=transaction, task_id="mine").adelay(11)
        assert mine.is_new is False
        with pytest.raises(BadArguments, match="await"):
            work.using(session=transaction).delay(1)
        assert rows(STATUSES) == []
        await execute("COMMIT")
        assert len(rows(STATUSES)) == 10
        if way == "asyncpg":
            await execute("BEGIN")
        await work.using(session=transaction).adelay(12)
        await execute("ROLLBACK")
        assert len(rows(STATUSES)) == 10


@pytest.mark.parametrize("way", ON_LOOPS)
def test_what_is_enqueued_in_a_loops_transaction_is_of_that(
    app: Celeriac, work: Task[[int], int], database_url: str, rows: Rows, kicked: list[str], way: str
) -> None:
    run(_use(database_url, way, app, rows))
    assert {*kicked} == ({"keyed", "work"} if "Session" in way else set())
    run_all(app, lambda: look_once(app))
    assert rows("SELECT DISTINCT status FROM worker_tasks WHERE scheduled_for <= now()") == [("completed",)]


def test_a_scoped_session_of_a_loops_is_the_one_it_has_here(
    app: Celeriac, work: Task[[int], int], database_url: str, rows: Rows
) -> None:
    async def main() -> None:
        engine = create_async_engine(of(database_url, "postgresql+psycopg"))
        scoped = async_scoped_session(lambda: AsyncSession(engine), scopefunc=asyncio.current_task)
        await work.using(session=scoped).adelay(1)
        assert rows(STATUSES) == []
        await scoped.commit()
        await scoped.remove()
        await engine.dispose()

    run(main())
    assert len(rows(STATUSES)) == 1


# -- transactions of drivers that block --------------------------------------------------------------------------------


@contextmanager
def of_psycopg2(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(of(url, "postgresql"), cursor_factory=RealDictCursor)
    yield connection
    connection.close()


@contextmanager
def of_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(of(url, "postgresql"), row_factory=dict_row) as connection:
        yield connection


@contextmanager
def of_sqlalchemy(url: str) -> Iterator[Any]:
    """On psycopg 3, whose parameters the server binds."""
    engine = create_engine(of(url, "postgresql+psycopg"))
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.mark.parametrize("way", [of_psycopg2, of_psycopg, of_sqlalchemy])
def test_what_is_enqueued_in_a_drivers_transaction_is_of_that(
    app: Celeriac, work: Task[[int], int], database_url: str, rows: Rows, way: Callable[[str], Any]
) -> None:
    keyed = app.tasks["keyed"]
    with way(database_url) as transaction:
        work.using(session=transaction).delay(1)
        transaction.rollback()
        work.using(session=transaction, account="a").delay(2)
        keyed.using(session=transaction).delay(3)
        assert keyed.using(session=transaction).delay(3).is_new is False
        work.bulk([(n,) for n in range(4, 7)], session=transaction)
        mine = work.using(session=transaction, task_id="mine")
        mine.delay(7)
        with pytest.raises(IdTaken):
            mine.delay(8)
        run(work.using(session=transaction).adelay(9))
        assert rows(STATUSES) == []
        transaction.commit()
    assert len(rows(STATUSES)) == 7
    run_all(app, lambda: look_once(app))
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("completed",)]


@pytest.mark.parametrize("way", [of_psycopg2, of_psycopg])
def test_a_drivers_database_without_the_schema_is_told_in_a_line(
    work: Task[[int], int], empty_url: str, way: Callable[[str], Any]
) -> None:
    with way(empty_url) as transaction, pytest.raises(NotReady, match="run `celeriac migrate`"):
        work.using(session=transaction).delay(1)


@pytest.mark.parametrize("way", [of_psycopg2, of_psycopg, "asyncpg"])
def test_without_a_transaction_an_enqueue_is_one_and_wakes_at_once(
    app: Celeriac, work: Task[[int], int], database_url: str, rows: Rows, kicked: list[str], way: Any
) -> None:
    calls: list[Any] = [{"n": 1}, {"n": 2}]
    if way == "asyncpg":

        async def main() -> None:
            connection = await asyncpg.connect(of(database_url, "postgresql"))
            await app.tasks["keyed"].abulk(calls, session=connection)
            await connection.close()

        run(main())
    else:
        with way(database_url) as connection:
            connection.autocommit = True
            app.tasks["keyed"].bulk(calls, session=connection)
    assert {*kicked} == {"keyed"}
    assert len(rows(STATUSES)) == 2


def test_a_driver_that_takes_no_statements_of_ours_is_refused_by_name(
    app: Celeriac, work: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(app.database.engine) as session:
        monkeypatch.setattr(session.connection().dialect, "driver", "pg8000")
        with pytest.raises(ConfigurationError, match="'pg8000': use psycopg2, psycopg or asyncpg"):
            work.using(session=session).delay(1)


# -- without a transaction of theirs -----------------------------------------------------------------------------------


def test_nothing_of_it_blocks_the_loop(
    app: Celeriac, work: Task[[int], int], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Postgres does not answer the loop goes on."""
    held, insert = threading.Event(), app.enqueuer.insert

    def slowly(*of_call: Any) -> Any:
        assert held.wait(20)
        return insert(*of_call)

    monkeypatch.setattr(app.enqueuer, "insert", slowly)

    async def main() -> None:
        calls = [work.adelay(1), work.aapply_async((2,)), work.abulk([(3,), (4,)]), work.using(priority=9).adelay(5)]
        under_way = asyncio.gather(*calls)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, held.set)
        await under_way

    monkeypatch.setattr(app.enqueuer, "insert_many", lambda _, batches, __: [(t.task_id, r) for b in batches
                        for t, r in zip(b, slowly(b, None), strict=True)])  # fmt: skip
    run(main())
    assert rows("SELECT priority FROM worker_tasks ORDER BY priority DESC") == [(9,), (0,), (0,), (0,), (0,)]


def test_a_scoped_session_that_blocks_is_the_callers_own(app: Celeriac, work: Task[[int], int], rows: Rows) -> None:
    scoped = scoped_session(sessionmaker(app.database.engine))
    run(work.using(session=scoped).adelay(1))
    assert rows(STATUSES) == []
    scoped.commit()
    scoped.remove()
    assert len(rows(STATUSES)) == 1


def test_what_an_async_handler_enqueues_comes_with_its_outcome(app: Celeriac, rows: Rows) -> None:
    seen: list[Any] = []

    @app.task(role="parent", shared=False, prompt=False, chunk=500, bind=True)
    async def parent(self: Any) -> None:
        child = await app.tasks["child"].adelay()
        seen.append((child.is_new, rows("SELECT role FROM worker_tasks")))
        with pytest.raises(CeleriacError, match="comes with the outcome of this handler"):
            await child.aget(timeout=1)

    @app.task(role="child", shared=False, prompt=False, chunk=500)
    def child() -> None: ...

    app.register_roles()
    parent.delay()
    run_all(app)
    assert seen == [(None, [("parent",)])]
    family = "SELECT c.status FROM worker_tasks c JOIN worker_tasks p ON p.id = c.parent_id WHERE p.role = 'parent'"
    assert rows(family) == [("completed",)]


def test_the_rules_of_a_role_are_not_read_in_the_loops_way(
    app: Celeriac, work: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first call, in a transaction of the loop's."""
    reads, goes_on, is_in_time = threading.Event(), threading.Event(), []
    look_up = registry.look_up

    def slowly(*given: Any) -> Any:
        reads.set()
        is_in_time.append(goes_on.wait(10))
        return look_up(*given)

    monkeypatch.setattr(registry, "look_up", slowly)
    engine = create_async_engine(make_url(app.database_url).set(drivername="postgresql+asyncpg"))

    async def main() -> None:
        async with AsyncSession(engine) as session:
            call = asyncio.ensure_future(work.using(session=session).adelay(1))
            assert await asyncio.to_thread(reads.wait, 5)
            goes_on.set()
            await call
        await engine.dispose()

    run(main())
    assert is_in_time == [True]


# -- results -----------------------------------------------------------------------------------------------------------


def test_results_are_awaited_by_one_poller(app: Celeriac, work: Task[[int], int]) -> None:
    @app.task(role="fails", shared=False, prompt=False, chunk=500)
    def fails() -> None:
        raise ValueError("on purpose")

    app.register_roles()

    async def main() -> list[Any]:
        results = [await work.adelay(n) for n in range(20)] + [await fails.adelay()]
        waits = [asyncio.ensure_future(result.aget(timeout=20, interval=0.02)) for result in results]
        await asyncio.sleep(0.03)
        assert len([t for t in threading.enumerate() if t.name == "celeriac-poller"]) == 1
        await asyncio.to_thread(run_all, app)
        ended = await asyncio.gather(*waits, return_exceptions=True)
        assert results[3].status == "SUCCESS"
        assert isinstance(await results[-1].aget(propagate=False), ValueError)
        return ended

    *values, error = run(main())
    assert values == list(range(1, 21))
    assert isinstance(error, ValueError)
    app.backend.poller.close()


def test_who_waits_in_vain_is_told_in_time(app: Celeriac, work: Task[[int], int]) -> None:
    async def main() -> None:
        with pytest.raises(CeleryTimeoutError):
            await (await work.adelay(1)).aget(timeout=0.05)
        with pytest.raises(CeleryTimeoutError):
            await anext(app.AsyncResult("unknown").aprogress(timeout=0.05))

    run(main())
    app.backend.poller.close()


def test_progress_is_followed_to_the_end(app: Celeriac) -> None:
    goes_on = [threading.Event() for _ in range(3)]

    @app.task(role="load", shared=False, prompt=False, chunk=500, bind=True)
    def load(self: Any) -> None:
        for n, event in enumerate(goes_on):
            self.progress({"n": n})
            assert event.wait(10)
        self.update_state(state="LOADING", meta="all")

    app.register_roles()

    async def main() -> list[Any]:
        loaded = await load.adelay()
        worker = asyncio.ensure_future(asyncio.to_thread(run_all, app))
        seen = []
        async for value in loaded.aprogress(timeout=20, interval=0.01):
            seen.append(value)
            if len(seen) <= len(goes_on):
                goes_on[len(seen) - 1].set()
        await worker
        return seen

    assert run(main()) == [{"n": 0}, {"n": 1}, {"n": 2}, "all"]
    app.backend.poller.close()


def test_an_eager_call_is_awaited_as_any_other(app: Celeriac, work: Task[[int], int]) -> None:
    app.conf.task_always_eager = True

    async def main() -> Any:
        result = await work.adelay(1)
        return await result.aget(timeout=1), [value async for value in result.aprogress()]

    assert run(main()) == (2, [])
