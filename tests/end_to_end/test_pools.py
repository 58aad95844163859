"""Celery's pools: what runs in a thread or greenlet is interrupted, handed back and rescued as what has a process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from celery import chord
from sqlalchemy import create_engine

from tests import processes
from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.end_to_end.listener import listening
from tests.processes import ROOT, Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]

QUEUES = "add,awaiting,slow,meeting,queuing,gather,permanent,leaver,reminded,mixed,snoozer,flaky,parent,celery"

#: Sessions of this database that wait for an advisory lock.
WAITING = """SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
    WHERE locktype = 'advisory' AND NOT granted AND d.datname = current_database()"""

#: Pools whose tasks share a process, and all.
SHARED = ("threads", "asyncio", "gevent")
EVERY = ("prefork", "solo", *SHARED)

BY_NIGHT = pytest.mark.nightly("the same in other pools; by day each of these promises is kept in some")


def pools(*by_day: str, of: tuple[str, ...] = SHARED) -> pytest.MarkDecorator:
    """Each of them, one after the other: its tests share a worker."""
    each = [pool if pool in by_day else pytest.param(pool, marks=BY_NIGHT) for pool in of]
    return pytest.mark.parametrize("pool", each, scope="module")


def options(pool: str) -> tuple[str, ...]:
    """Of the worker that most of a pool's tests share."""
    return ("-P", pool, "-c", "28" if pool in SHARED else "1", "-E", "-Q", QUEUES)


def begun(rows: Rows, n: int = 1) -> None:
    until(lambda: len(rows("SELECT FROM ran WHERE what = 'begin'")) >= n, f"{n} to begin")


def status(rows: Rows) -> list[str]:
    return sorted(str(told) for (told,) in rows("SELECT status FROM worker_tasks"))


@pools("threads")
def test_a_role_with_a_hard_limit_is_refused_in_a_line_that_says_what_to_use(
    database_url: str, redis_url: str, tmp_path: Path, pool: str
) -> None:
    command = [sys.executable, "-m", "celery", "-A", "tests.end_to_end.shop", "worker", "-P", pool]
    environ = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    told = processes.refusal([*command, "-Q", "add,hurried"], environ, tmp_path / "log")
    assert told.startswith(f"Error: -P {pool}: ")
    assert "hurried" in told
    assert "use prefork" in told


@pools("prefork", "threads", of=EVERY)
def test_a_running_task_is_cancelled_and_its_worker_goes_on(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    running = worker(*options(pool))
    long = shop.slow.delay(60)
    begun(rows)
    shop.app.cancel(long.id)
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'cancelled'"), "the cancellation")
    assert shop.add.delay(1, 1).get(timeout=20) == 2
    assert running.process.poll() is None


@pools("prefork", "asyncio", of=EVERY)
def test_an_async_handler_runs_and_is_cancelled_where_it_waits(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    worker(*options(pool))
    assert shop.awaiting.delay(0.1).get(timeout=60) == "done"
    long = shop.awaiting.delay(600)
    begun(rows, 2)
    shop.app.cancel(long.id)
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'cancelled'"), "the cancellation")
    assert rows("SELECT what FROM ran WHERE task_id = '" + long.id + "' ORDER BY n") == [("begin",), ("cancelled",)]
    assert shop.add.delay(1, 1).get(timeout=60) == 2


@pools("threads")
def test_tasks_overlap_in_one_process_and_inspect_tells_of_all(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    """Each ends only after all have begun."""
    running = worker(*options(pool))
    assert f"-P {pool}: " in running.log.read_text()
    results = [shop.meeting.delay(8, end="leave") for _ in range(8)]
    begun(rows, 8)
    (active,) = until(lambda: shop.app.control.inspect(timeout=1).active(), "an answer").values()
    assert {task["id"] for task in active} == {result.id for result in results}
    rows("INSERT INTO ran (what) VALUES ('leave')")
    assert len({result.get(timeout=20) for result in results}) == 8
    assert rows("SELECT DISTINCT pid FROM ran WHERE what = 'begin'") == [(running.pid,)]
    assert rows("SELECT what, count(*) FROM ran WHERE what <> 'leave' GROUP BY 1 ORDER BY 1") == [
        ("begin", 8), ("end", 8)
    ]  # fmt: skip


@pools("threads")
def test_who_waits_for_postgres_lets_others_run(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str, pool: str
) -> None:
    """So many as there are slots, each with a connection."""
    worker(*options(pool))
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1)")
        results = [shop.queuing.delay() for _ in range(28)]
        until(lambda: rows.one(WAITING) == 28, "all to wait")
    engine.dispose()
    assert [result.get(timeout=20) for result in results] == ["done"] * 28


@pools("asyncio")
def test_events_tell_of_each_task(shop: ModuleType, worker: Worker, rows: Rows, redis_url: str, pool: str) -> None:
    running = worker(*options(pool))
    with listening(redis_url) as listener:
        good = [shop.add.delay(n).id for n in range(20)]
        bad = [shop.permanent.delay().id for _ in range(3)]
        told = dict.fromkeys(good, "SUCCESS") | dict.fromkeys(bad, "FAILURE")
        until(lambda: listener.states() == told, "all to be told")
        assert {tuple(listener.kinds(i)) for i in good} == {("task-received", "task-started", "task-succeeded")}
    assert running.printed().count("completed successfully") == 20


@pools("threads")
def test_the_members_of_a_chord_run_side_by_side(shop: ModuleType, worker: Worker, rows: Rows, pool: str) -> None:
    worker(*options(pool))
    assert chord([shop.meeting.s(4) for _ in range(4)])(shop.gather.s()).get(timeout=30) == 4


@pools("asyncio")
def test_retries_and_sessions_are_each_tasks_own(shop: ModuleType, worker: Worker, rows: Rows, pool: str) -> None:
    worker(*options(pool))
    flaky = [shop.flaky.delay(1) for _ in range(8)]
    parents = [shop.parent.delay(fail=n % 2 == 1) for n in range(8)]
    assert [result.get(timeout=30) for result in flaky] == [2] * 8
    for n, parent in enumerate(parents):
        parent.get(timeout=30, propagate=n % 2 == 0)
    until(lambda: not rows("SELECT FROM tasks WHERE role <> 'parent'"), "the follow-ups")
    assert len(rows("SELECT FROM ran WHERE what = 'wrote'")) == 4
    assert rows.one("SELECT count(*) FROM history WHERE role = 'add' AND status = 'completed'") == 4


@pools("threads")
def test_a_soft_limit_interrupts_the_one_that_is_late(shop: ModuleType, worker: Worker, rows: Rows, pool: str) -> None:
    worker(*options(pool))
    other = shop.meeting.delay(1, end="SoftTimeLimitExceeded")
    begun(rows)
    late = shop.app.send_task("reminded", [2])
    assert late.get(timeout=20) == "done"
    assert other.get(timeout=20)
    assert rows("SELECT task_id FROM ran WHERE what = 'SoftTimeLimitExceeded'") == [(late.id,)]


@pytest.mark.usefixtures("alone")
@pools("asyncio")
@pytest.mark.usefixtures("alone")
def test_a_hard_limit_that_is_set_later_interrupts_as_a_soft_one(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    """Later than it was declared: a pool that cannot stop anything lets no role declare one."""
    shop.app.register_roles()
    shop.app.control.time_limit("slow", hard=0.3)
    running = worker(*options(pool))
    shop.slow.apply_async((60,), max_retries=0)
    until(lambda: status(rows) == ["failed"], "the limit")
    assert "SoftTimeLimitExceeded" in str(rows.one("SELECT error_message FROM worker_tasks"))
    assert running.process.poll() is None


@pools("threads")
def test_what_runs_is_finished_before_the_worker_ends(shop: ModuleType, worker: Worker, rows: Rows, pool: str) -> None:
    running = worker("-P", pool, "-c", "4", "-Q", QUEUES, CELERIAC_DRAIN_GRACE_MS="60000")
    for _ in range(3):
        shop.meeting.delay(3, end="leave")
    begun(rows, 3)
    running.process.send_signal(signal.SIGTERM)
    until(lambda: rows("SELECT FROM workers WHERE status = 'draining'"), "the drain")
    late = shop.add.delay(1)
    rows("INSERT INTO ran (what) VALUES ('leave')")
    assert running.process.wait(30) == 0
    assert rows("SELECT task_id, losses FROM tasks") == [(late.id, 0)]
    assert rows("SELECT status FROM workers") == [("stopped",)]


@pools("threads")
@pytest.mark.parametrize("blocks", [False, True])
def test_what_outlasts_the_grace_period_is_handed_back(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str, blocks: bool
) -> None:
    """A thread that blocks does not keep the process from ending."""
    running = worker("-P", pool, "-c", "2", "-Q", QUEUES, CELERIAC_DRAIN_GRACE_MS="300")
    (shop.mixed if blocks else shop.slow).delay(600)
    begun(rows)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 0)]
    assert rows("SELECT status FROM workers") == [("stopped",)]


@pools("threads")
def test_what_a_killed_worker_ran_is_rescued(shop: ModuleType, worker: Worker, rows: Rows, pool: str) -> None:
    lost = worker(*options(pool))
    results = [shop.meeting.delay(3, end="leave") for _ in range(3)]
    begun(rows, 3)
    lost.kill()
    worker(*options(pool))
    rows("INSERT INTO ran (what) VALUES ('leave')")
    for result in results:
        result.get(timeout=30)
    assert rows("SELECT status, losses FROM worker_tasks") == [("completed", 1)] * 3


@pools("gevent")
def test_a_handler_that_exits_takes_no_other_down(shop: ModuleType, worker: Worker, rows: Rows, pool: str) -> None:
    running = worker(*options(pool))
    other = shop.meeting.delay(2, end="leave")
    shop.leaver.delay()
    until(lambda: rows("SELECT FROM worker_tasks WHERE role = 'leaver' AND status = 'failed'"), "it to fail")
    rows("INSERT INTO ran (what) VALUES ('leave')")
    assert other.get(timeout=20)
    assert running.process.poll() is None
    assert rows("SELECT losses FROM worker_tasks WHERE role = 'meeting'") == [(0,)]
    assert rows("SELECT losses, error_message FROM worker_tasks WHERE role = 'leaver'") == [(0, "SystemExit: 3")]
    assert shop.add.delay(1, 1).get(timeout=20) == 2
