"""An enqueue ends within its time, whatever becomes of Postgres, and says what is known of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from celeriac import Celeriac, NoAnswer, NotReady, Settings, Task
from celeriac.enqueue import bulk
from celeriac.seam import beside
from tests.processes import Rows

LIMIT = 0.3
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'celeriac hasty' AND datname = current_database()"


@pytest.fixture
def hasty(database_url: str, redis_url: str) -> Iterator[Celeriac]:
    settings = replace(Settings(), database_url=database_url, redis_url=redis_url, enqueue_timeout=LIMIT)
    app = Celeriac("hasty", settings=settings, set_as_current=False)
    yield app
    app.close()


@pytest.fixture
def work(hasty: Celeriac) -> Task[[int], None]:
    @hasty.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None: ...

    @hasty.task(role="keyed", shared=False, prompt=False, lock_by="n", unique_by="n")
    def keyed(n: int) -> None: ...

    hasty.register_roles()
    hasty.tasks["keyed"].delay(0)
    return work


@contextmanager
def frozen(rows: Rows) -> Iterator[None]:
    """What serves the app is there and does not answer, and no packet to it is refused."""
    pids = [pid for (pid,) in rows(BACKENDS)]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def ways(app: Celeriac) -> dict[str, Callable[[], Any]]:
    work, keyed = app.tasks["work"], app.tasks["keyed"]
    return {
        "delay": lambda: work.delay(1),
        "keyed": lambda: keyed.delay(1),
        "named": lambda: work.using(task_id="mine").delay(1),
        "bulk": lambda: work.bulk([(n,) for n in range(2500)]),
        "adelay": lambda: asyncio.run(work.adelay(1)),
        "by name": lambda: app.send_task("elsewhere"),
    }


@pytest.mark.parametrize("way", ["delay", "keyed", "named", "bulk", "adelay", "by name"])
def test_a_frozen_postgres_ends_an_enqueue_in_time(
    hasty: Celeriac, work: Task[[int], None], rows: Rows, way: str
) -> None:
    work.delay(0)  # keeps a connection of its own
    hasty.tasks["keyed"].delay(3)
    before = rows("SELECT count(*) FROM worker_tasks")
    with frozen(rows):
        began = time.monotonic()
        with pytest.raises(NoAnswer, match=r"did not answer within 0\.3 s \(CELERIAC_ENQUEUE_TIMEOUT_MS\)"):
            ways(hasty)[way]()
        assert LIMIT <= time.monotonic() - began < LIMIT + 2
    work.delay(2)
    assert rows("SELECT count(*) FROM worker_tasks")[0][0] > before[0][0]
    assert hasty.database.watch.begun == {}


def test_a_server_that_lets_nobody_in_is_not_ready(redis_url: str) -> None:
    """Nothing was sent, so nothing was accepted: that is said."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/shop"
        app = Celeriac("hasty", settings=replace(Settings(), database_url=url, enqueue_timeout=1), set_as_current=False)

        @app.task(role="work", shared=False)
        def work() -> None: ...

        with pytest.raises(NotReady, match="nothing was enqueued"):
            work.delay()
        app.close()


def test_what_takes_its_time_and_is_answered_is_not_ended(
    hasty: Celeriac, work: Task[[int], None], rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bulk has many statements, each of which has the time of one."""
    insert = bulk._enqueue

    def slowly(*of_call: Any) -> Any:
        time.sleep(LIMIT / 5)
        return insert(*of_call)

    monkeypatch.setattr(bulk, "BULK", 1)
    monkeypatch.setattr(bulk, "_enqueue", slowly)
    assert len(hasty.tasks["keyed"].bulk([(n,) for n in range(1, 9)])) == 8
    assert rows("SELECT count(*) FROM worker_tasks WHERE role = 'keyed'") == [(9,)]


def test_the_limit_is_ten_seconds_where_nothing_is_set(app: Celeriac) -> None:
    assert app.database.watch.limit == app.beside.limit == 10


def test_calls_that_wait_for_a_thread_end_with_those_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing was sent for them."""
    monkeypatch.setattr(beside, "THREADS", 1)
    threads, begun = beside.Beside(0.05), threading.Event()

    def unanswered(_: Any) -> None:
        assert not begun.is_set()
        begun.set()
        time.sleep(0.1)
        raise NoAnswer("not within 0.05 s")

    async def main() -> list[Any]:
        return await asyncio.gather(*(threads.enqueue(unanswered, {}) for _ in range(3)), return_exceptions=True)

    first, *others = asyncio.run(main())
    assert isinstance(first, NoAnswer)
    assert [type(error) for error in others] == [NotReady, NotReady]
    threads.close()
