"""Many statements at once, none of them long, are named where they make Postgres slow; what waits is none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from celeriac.insights.fleet import slowness as module
from celeriac.insights.fleet.slowness import Slowness, slowness
from celeriac.store.connections import Database
from tests.processes import until

N = 40

#: A part of a second of a processor's work, over and over.
BUSY = "SELECT sum(i) FROM generate_series(1, 200000) AS i WHERE i % 7 = 3"

Met = Callable[[], Slowness | None]


@pytest.fixture
def met(database: Database) -> Met:
    def ask() -> Slowness | None:
        with database.transaction() as connection:
            return slowness(connection)

    return ask


@contextmanager
def running(url: str, statement: str, name: str = "crawler") -> Iterator[None]:
    """So many sessions that run it again and again."""
    over = Event()
    engine = create_engine(url, poolclass=NullPool, connect_args={"application_name": name})

    def run() -> None:
        with engine.connect() as connection:
            while not over.is_set():
                connection.execute(text(statement))

    with ThreadPoolExecutor(N) as threads:
        started = [threads.submit(run) for _ in range(N)]
        try:
            yield
        finally:
            over.set()
    for one in started:
        one.result()


def test_many_short_statements_that_keep_the_processors_busy_are_named(database_url: str, met: Met) -> None:
    def are_named() -> Slowness | None:
        slow = met()
        return slow if slow is not None and slow.crowd > 3 and slow.many is not None else None

    with running(database_url, BUSY):
        slow = until(are_named, "them to be in each other's way")
    assert slow is not None
    assert slow.many is not None
    assert (slow.many.name, slow.many.n > N / 2) == ("crawler", True)
    assert f" of login {slow.many.login}, crawler, one of them: SELECT sum(i)" in slow.sentence
    assert slow.longest or "PgBouncer" in slow.cure


#: What keeps nobody else from a processor: sessions that wait, and a backlog that the engine works off.
HARMLESS = {
    "they wait": ("SELECT pg_sleep(0.2)", "crawler", "wait_event = 'PgSleep'"),
    "the engine's own": (BUSY, "celeriac worker", "state = 'active'"),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_as_many_that_are_harmless_are_not(database: Database, database_url: str, met: Met, what: str) -> None:
    statement, name, condition = HARMLESS[what]
    active = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND {condition}"

    def run() -> bool:
        with database.statement() as connection:
            return int(connection.exec_driver_sql(active).scalar_one()) > module.CROWD

    with running(database_url, statement, name):
        until(run, "them to run")
        slow = met()
    assert slow is None or slow.many is None
