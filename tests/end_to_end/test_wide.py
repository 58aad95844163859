"""`-P asyncio`: many coroutines in flight in one process, few connections, and nothing lost by what goes away."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import ModuleType

import pytest
from celery import chord

from celeriac import insights
from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.end_to_end.test_pools import begun, status
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]

QUEUES = "add,awaiting,writing,linger,blocking,asking,gather,celery"

#: Connections of a worker and of the test's own app, none of which is the test's reader.
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

MANY = 600


@pytest.fixture
def running(worker: Worker) -> Running:
    return worker("-P", "asyncio", "-c", "300", "-Q", QUEUES)


@pytest.mark.usefixtures("running")
def test_hundreds_are_in_flight_and_each_sees_itself(shop: ModuleType, rows: Rows) -> None:
    shop.linger.bulk((60.0,) for _ in range(300))
    until(lambda: rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'running'") == 300, "all to be in flight")
    assert rows.one(CONNECTIONS) < 20
    (active,) = until(lambda: shop.app.control.inspect(timeout=5).active(), "an answer").values()
    assert len(active) == 300
    with shop.app.database.statement() as connection:
        assert [worker["busy"] for worker in insights.workers(connection)] == [300]
        assert [report["active_task_count"] for report in insights.heartbeats(connection)] == [300]
    for (task_id,) in rows("SELECT task_id FROM worker_tasks"):
        shop.app.cancel(task_id)
    until(lambda: status(rows) == ["cancelled"] * 300, "all to be cancelled")
    results = shop.linger.bulk((0.2, n) for n in range(MANY))
    assert [result.get(timeout=60) for result in results] == list(range(MANY))


@pytest.mark.usefixtures("running")
def test_what_a_coroutine_asks_of_its_task_is_answered(shop: ModuleType, rows: Rows) -> None:
    assert shop.asking.delay().get(timeout=60) == "asked"
    until(lambda: rows("SELECT FROM history WHERE role = 'add' AND status = 'completed'"), "the follow-up")
    assert rows.one("SELECT progress FROM worker_tasks WHERE role = 'asking'") == {"done": 1}
    assert rows.one("SELECT count(*) FROM celeriac.task_logs WHERE line = 'half way'") == 2
    assert chord([shop.linger.s(0.1, n) for n in range(4)])(shop.gather.s()).get(timeout=60)


def test_a_blocked_loop_is_named_with_its_task_and_line(shop: ModuleType, rows: Rows, running: Running) -> None:
    shop.blocking.delay(2.0)
    until(lambda: "The event loop is blocked" in running.printed(), "the warning")
    until(lambda: status(rows) == ["completed"], "its end")
    (line,) = [line for line in running.printed().splitlines() if "is blocked for" in line][:1]
    assert " of blocking, at " in line
    assert "shop.py" in line
    assert " in blocking" in line


def test_a_loop_that_is_blocked_beyond_the_lease_loses_none(shop: ModuleType, rows: Rows, running: Running) -> None:
    """Of a lease of three seconds."""
    other = shop.awaiting.delay(1.0)
    begun(rows)
    shop.blocking.delay(8.0)
    assert other.get(timeout=60) == "done"
    assert rows("SELECT DISTINCT losses FROM worker_tasks") == [(0,)]


def test_what_outlasts_the_grace_period_is_cancelled_and_handed_back(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    running = worker("-P", "asyncio", "-c", "8", "-Q", QUEUES, CELERIAC_DRAIN_GRACE_MS="1000")
    shop.awaiting.delay(600)
    begun(rows)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) == 0
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 0)]
    assert rows("SELECT what FROM ran ORDER BY n") == [("begin",), ("lease lost",)]
    assert rows("SELECT status FROM workers") == [("stopped",)]


def test_what_a_killed_worker_had_in_flight_runs_again(
    shop: ModuleType, worker: Worker, rows: Rows, running: Running
) -> None:
    results = [shop.awaiting.delay(3.0) for _ in range(5)]
    begun(rows, 5)
    running.kill()
    worker("-P", "asyncio", "-c", "300", "-Q", QUEUES)
    assert [result.get(timeout=120) for result in results] == ["done"] * 5
    assert rows("SELECT status, losses FROM worker_tasks") == [("completed", 1)] * 5


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_coroutine_writes_is_there_once_with_its_outcome(
    shop: ModuleType, worker: Worker, rows: Rows, number: signal.Signals
) -> None:
    """Its worker is killed, or told to stop and waits no longer, while it has written and not ended."""
    running = worker("-P", "asyncio", "-c", "300", "-Q", QUEUES, CELERIAC_DRAIN_GRACE_MS="1000")
    results = [shop.writing.delay(4.0) for _ in range(5)]
    begun(rows, 5)
    running.signal_all(number)
    running.process.wait(60)
    assert rows("SELECT FROM ran WHERE what = 'wrote'") == []
    again = worker("-P", "asyncio", "-c", "300", "-Q", QUEUES)
    for result in results:
        result.get(timeout=120)
    assert rows("SELECT DISTINCT pid FROM ran WHERE what = 'wrote'") == [(again.pid,)]
    assert sorted(i for (i,) in rows("SELECT task_id FROM ran WHERE what = 'wrote'")) == sorted(r.id for r in results)
