"""What stops a coroutine stops it: again if it goes on, and while Postgres does not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from celeriac import Celeriac
from celeriac.errors import LeaseLost, TaskCancelled
from celeriac.roles.role import Role
from celeriac.run import coroutines
from celeriac.run.coroutines import Awaited
from celeriac.run.places import Place
from celeriac.run.run import Run
from celeriac.run.watch import watch
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database
from tests.postgres.test_flights import flying
from tests.postgres.workflows import run_all, run_once
from tests.processes import Rows, until

#: How long (seconds) a handler goes on that nobody stops.
LONG = 20.0


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coroutines, "AGAIN", 0.3)


def in_slots(app: Celeriac, rows: Rows) -> None:
    with flying(app):
        until(lambda: rows.one("SELECT count(*) FROM history") == 1, "it to end", LONG)


def in_a_process(app: Celeriac, _: Rows) -> None:
    run_once(app)


WAYS = pytest.mark.parametrize("run", [in_slots, in_a_process])


@WAYS
@pytest.mark.usefixtures("at_once")
def test_a_coroutine_that_goes_on_at_its_time_limit_is_cancelled_again_and_named(
    app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture, run: Callable[[Celeriac, Rows], None]
) -> None:
    because: list[Any] = []

    @app.task(role="work", shared=False, bind=True, timeout=0.2, max_retries=0, prompt=run is in_slots)
    async def work(self: Any) -> None:
        ends = time.monotonic() + LONG / 2
        while len(because) < 2 and time.monotonic() < ends:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                because.append(self.stopped_because)

    app.register_roles()
    work.delay()
    run(app, rows)
    assert because == ["time limit"] * 2
    assert "of work goes on although it was cancelled" in caplog.text


@pytest.mark.usefixtures("at_once")
def test_a_coroutine_that_blocks_a_process_is_interrupted_at_its_time_limit(app: Celeriac, rows: Rows) -> None:
    @app.task(role="work", shared=False, timeout=0.2, max_retries=0, prompt=False)
    async def work() -> None:
        ends = time.monotonic() + LONG / 2
        while time.monotonic() < ends:
            time.sleep(0.01)  # noqa: ASYNC251

    app.register_roles()
    work.delay()
    run_once(app)
    assert rows("SELECT status, error_message FROM worker_tasks") == [
        ("failed", "SoftTimeLimitExceeded: SoftTimeLimitExceeded(0.2,)")
    ]


@pytest.mark.usefixtures("at_once")
def test_a_coroutine_that_never_ends_does_not_go_on_within_the_next_one(app: Celeriac, rows: Rows) -> None:
    ticks: list[float] = []

    @app.task(role="work", shared=False, timeout=0.2, max_retries=0, prompt=False)
    async def work() -> None:
        ends = time.monotonic() + LONG / 2
        while time.monotonic() < ends:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                ticks.append(0.0)
            ticks.append(time.monotonic())

    @app.task(role="next", shared=False, prompt=False)
    async def after() -> int:
        before = len(ticks)
        await asyncio.sleep(0.1)
        return len(ticks) - before

    app.register_roles()
    work.delay()
    run_once(app)
    after.delay()
    run_all(app)
    assert rows("SELECT status, result FROM worker_tasks WHERE role = 'next'") == [("completed", 0)]


def test_what_a_coroutine_leaves_running_in_a_process_is_named_once(
    app: Celeriac, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[asyncio.Task[None]] = []

    async def goes_on() -> None:
        await asyncio.sleep(LONG)

    @app.task(role="work", shared=False, prompt=False, chunk=500)
    async def work() -> None:
        left.append(asyncio.create_task(goes_on()))
        await asyncio.sleep(0)

    app.register_roles()
    for _ in range(2):
        work.delay()
    run_all(app)
    assert caplog.text.count("of work has left an asyncio task running (") == 1
    for task in left:
        task.cancel()


@contextmanager
def unanswered(database: Database, rows: Rows) -> Iterator[None]:
    """The watch's own statement waits for a lock, and what serves it does not answer any more."""
    asked = """SELECT pid FROM pg_stat_activity
        WHERE strpos(query, 'cancel_requested_at') > 0 AND wait_event_type = 'Lock'"""
    with database.transaction() as connection:
        connection.exec_driver_sql("LOCK TABLE celeriac.tasks IN ACCESS EXCLUSIVE MODE")
        until(lambda: rows(asked), "the watch to ask")
        ((pid,),) = rows(asked)
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_time_limit_holds_while_postgres_does_not_answer(app: Celeriac, database: Database, rows: Rows) -> None:
    because: list[Any] = []
    begun = threading.Event()

    @app.task(role="work", shared=False, bind=True, timeout=2.0, max_retries=0)
    async def work(self: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            because.append(self.stopped_because)
            raise

    app.register_roles()
    work.delay()
    with flying(app):
        assert begun.wait(LONG)
        with unanswered(database, rows):
            until(lambda: bool(because), "it to be stopped", LONG / 2)
    assert because == ["time limit"]


class Nowhere(Place):
    """A place that notes what it is to stop by."""

    def __init__(self) -> None:
        super().__init__(0)
        self.stopped_by: list[BaseException] = []

    def interrupt(self, _: Run, error: BaseException) -> bool:
        self.stopped_by.append(error)
        return True


class Unrenewed:
    def lease_ends_soon(self) -> bool:
        return True

    def give_up_waiting(self) -> None:
        raise AssertionError("it waits for Postgres")


def new_run(database: Database, began: float) -> Run:
    task = Started._make([1, "one", None, [], {}, *[None] * (len(Started._fields) - 5)])
    run = Run(task, Role(name="work", timeout=None), database)
    run.began = began
    return run


def test_a_handler_without_a_lease_is_stopped_without_a_word_from_postgres(database: Database) -> None:
    place = Nowhere()
    place.current = (Unrenewed(), new_run(database, time.monotonic() - 1))
    watch._limit(place)
    assert [type(error) for error in place.stopped_by] == [LeaseLost]


def test_a_weaker_reason_does_not_replace_a_stronger_one(database: Database) -> None:
    """Each new reason is a cancel at once, so that two in turn would leave no time to clean up."""
    run, loop = new_run(database, 0.0), asyncio.new_event_loop()

    async def act() -> None:
        await asyncio.sleep(LONG)

    awaited = Awaited(loop, loop.create_task(act()))
    for error in (SoftTimeLimitExceeded(1), TaskCancelled(), SoftTimeLimitExceeded(1), LeaseLost(), TaskCancelled()):
        awaited.stop(run, error)
    assert isinstance(run.stopping, LeaseLost)
    assert awaited.task.cancelling() == 0
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(awaited.task)
    assert awaited.task.cancelling() == 3
    loop.close()
