"""Each way of stopping a worker is a drain. The table in docs/workers.md is made of what is asserted here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import psutil
import pytest
from sqlalchemy import create_engine

from celeriac.worker.stops import TOGETHER
from tests.processes import EXECUTED, ROOT, Rows, Running, until

Worker = Callable[..., Running]

POOLS = ("prefork", "solo", "threads", "gevent", "asyncio")

TERM, QUIT, INT, HUP = signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP
AS_IT_IS = {EXECUTED: "1"}
REMAPPED = {"REMAP_SIGTERM": "SIGQUIT"} | AS_IT_IS

#: How it is stopped: the signals, whether its whole group gets them, and what is in its environment.
WAYS: dict[str, tuple[tuple[signal.Signals, ...], bool, dict[str, str]]] = {
    "`SIGTERM`": ((TERM,), False, {}),
    "`SIGTERM` to the group": ((TERM,), True, {}),
    "`SIGTERM` twice, to the group": ((TERM, TERM), True, {}),
    "`SIGTERM`, `REMAP_SIGTERM=SIGQUIT`": ((TERM,), False, REMAPPED),
    "`SIGTERM` to the group, `REMAP_SIGTERM=SIGQUIT`": ((TERM,), True, REMAPPED),
    "`SIGQUIT`": ((QUIT,), False, {}),
    "`SIGQUIT` to the group": ((QUIT,), True, {}),
    "`SIGHUP` to the group": ((HUP,), True, AS_IT_IS),
    "`SIGINT` to the group (Ctrl-C)": ((INT,), True, {}),
    "`SIGINT` twice, to the group": ((INT, INT), True, {}),
    "`SIGTERM`, then `SIGQUIT`, to the group": ((TERM, QUIT), True, {}),
}

#: What becomes of a task that settles, one that ends within the grace period, one that does not, and one claimed.
DONE, BACK = ("completed", 0), ("pending", 0)
EITHER = ("completed or pending", 0)
FIRST, INSISTED = (DONE, DONE, BACK, BACK), (EITHER, BACK, BACK, BACK)

#: Who insists ends the grace period.
OUTCOMES = {way: INSISTED if signals[-1] in (QUIT, INT) and len(signals) > 1 else FIRST
            for way, (signals, _, _) in WAYS.items()}  # fmt: skip

BY_NIGHT = pytest.mark.nightly("each starts a worker and waits for its grace period")

#: Those of the daily tier.
DAILY = [
    ("`SIGTERM` to the group, `REMAP_SIGTERM=SIGQUIT`", "prefork"),
    ("`SIGINT` twice, to the group", "prefork"),
    ("`SIGQUIT` to the group", "solo"),
]
ALL = [(way, pool) for way in WAYS for pool in POOLS if (way, pool) not in DAILY]


def told(state: tuple[str, int]) -> str:
    return {DONE: "completes", BACK: "waits again", EITHER: "completes or waits again"}[state]


def table() -> str:
    """As docs/workers.md has it; in each pool alike."""
    lines = [
        "| signal | settling | ends within the grace period | takes longer | claimed |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {way} | {' | '.join(told(state) for state in states)} |" for way, states in OUTCOMES.items()),
    ]
    return "\n".join(lines)


def test_the_table_of_the_page_is_what_is_asserted_here() -> None:
    assert table() in (ROOT / "docs" / "workers.md").read_text()


def stopped(shop: ModuleType, worker: Worker, rows: Rows, database_url: str, way: str, pool: str) -> None:
    """`solo` runs one at a time: there the one that takes longer runs, and others have not begun. A ticket that Redis
    has is not this worker's. At SIGHUP it begins anew, with what waited.
    """
    signals, to_group, environ = WAYS[way]
    with_all = pool != "solo"
    running = worker("-P", pool, "-c", "3", "-Q", "slow", **environ)
    engine = create_engine(database_url)
    with engine.connect() as other:
        calls = [shop.slow.delay(seconds) for seconds in ((0.2, 1.0, 60, 60, 60) if with_all else (60, 60))]
        until(lambda: len(rows("SELECT FROM ran WHERE what = 'begin'")) >= (3 if with_all else 1), "them to begin")
        if with_all:
            other.exec_driver_sql(
                "SELECT FROM celeriac.tasks WHERE task_id = %s FOR UPDATE",
                (calls[0].id,),  # type: ignore[arg-type]
            )
            until(lambda: rows("SELECT FROM ran WHERE what = 'end'"), "the first to end")
        send(running, signals, to_group)
        other.rollback()
    engine.dispose()
    if HUP in signals:
        until(lambda: running.printed().count(" ready.") == 2, "it to begin anew")
    else:
        until(lambda: running.process.poll() is not None, "it to end")
        assert rows("SELECT FROM workers WHERE status <> 'stopped'") == []
    waits = ("claimed", "running") if HUP in signals else ("claimed",)
    statement = "SELECT task_id, status, losses FROM worker_tasks"
    ended = {task: ("pending" if status in waits else status, n) for task, status, n in rows(statement)}
    settling, quick, long, claimed = OUTCOMES[way]
    states = [settling, quick, long, claimed, claimed] if with_all else [long, claimed]
    if with_all and settling == EITHER:
        states[0] = ended[calls[0].id] if ended[calls[0].id] in (DONE, BACK) else EITHER
    assert [ended[call.id] for call in calls] == states, running.printed()[-3000:]


def send(running: Running, signals: tuple[signal.Signals, ...], to_group: bool) -> None:
    """A second one insists only if it comes after a while."""
    for n, number in enumerate(signals):
        if n:
            until(lambda: " shutdown (MainProcess)" in running.printed(), "the first to be heard")
            time.sleep(1.2 * TOGETHER)
        if to_group:
            running.signal_all(number)
        else:
            running.process.send_signal(number)


@pytest.mark.parametrize(("way", "pool"), DAILY)
def test_who_is_stopped_loses_nothing(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str, way: str, pool: str
) -> None:
    stopped(shop, worker, rows, database_url, way, pool)


@BY_NIGHT
@pytest.mark.parametrize(("way", "pool"), ALL)
def test_who_is_stopped_in_any_way_loses_nothing(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str, way: str, pool: str
) -> None:
    stopped(shop, worker, rows, database_url, way, pool)


def deployed(shop: ModuleType, worker: Worker, rows: Rows, way: str, seconds: float) -> None:
    """Four deploys in a row while a task runs that takes longer than their grace period, which is 1.5 s."""
    signals, to_group, environ = WAYS[way]

    def start() -> Running:
        return worker("-c", "2", "-Q", "slow", **environ)

    shop.slow.delay(seconds)
    running = start()
    for n in range(1, 5):
        until(lambda n=n: len(rows("SELECT FROM ran WHERE what = 'begin'")) == n, f"its run {n}")  # type: ignore[misc]
        send(running, signals, to_group)
        if HUP in signals:
            until(lambda n=n, at=running: at.printed().count(" ready.") == n + 1, "it to begin anew")  # type: ignore[misc]
        else:
            until(lambda at=running: at.process.poll() is not None, "it to end")  # type: ignore[misc]
            running = start()
    until(lambda: rows("SELECT FROM history"), "the task to end")
    assert rows("SELECT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)], running.printed()[
        -3000:
    ]


@pytest.mark.parametrize("way", ["`SIGTERM` to the group", "`SIGHUP` to the group"])
def test_four_deploys_in_a_row_cost_a_task_nothing(shop: ModuleType, worker: Worker, rows: Rows, way: str) -> None:
    deployed(shop, worker, rows, way, 4)


@pytest.mark.nightly("each runs a task of 20 s after four deploys")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_four_deploys_of_any_way_cost_a_task_of_20_s_nothing(
    shop: ModuleType, worker: Worker, rows: Rows, way: str
) -> None:
    deployed(shop, worker, rows, way, 20)


@pytest.mark.nightly("a worker begins anew five times")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("to_group", [True, False])
def test_a_worker_that_begins_anew_again_and_again_leaves_nothing_behind(
    shop: ModuleType, worker: Worker, rows: Rows, to_group: bool
) -> None:
    """While short tasks keep coming."""
    running = worker("-c", "4", "-Q", "nap,add", **AS_IT_IS)
    for n in range(1, 6):
        shop.nap.bulk([(0.1,)] * 60)
        shop.add.bulk([(1, 2)] * 60)
        until(lambda n=n: rows.one("SELECT count(*) FROM history") > 100 * (n - 1) + 10, "some to end")  # type: ignore[misc]
        send(running, (HUP,), to_group)
        until(lambda n=n: running.printed().count(" ready.") == n + 1, "it to begin anew")  # type: ignore[misc]
    until(lambda: rows.one("SELECT count(*) FROM history") == 600, "all to end")
    assert rows("SELECT status, losses, count(*)::int FROM worker_tasks GROUP BY 1, 2") == [("completed", 0, 600)]


def goes_on(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


#: By day what has a process of its own, and what has not.
EACH = [pool if pool in ("prefork", "threads") else pytest.param(pool, marks=BY_NIGHT) for pool in POOLS]


@pytest.mark.parametrize("pool", EACH)
def test_what_a_handler_has_started_ends_with_its_process(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    """Once the grace period is over; the log names it."""
    running = worker("-P", pool, "-c", "1", "-Q", "starting")
    call: Any = shop.starting.delay(60)
    ((pid,),) = until(lambda: rows("SELECT what FROM ran"), "it to start")
    running.process.terminate()
    until(lambda: running.process.poll() is not None, "the worker to end")
    assert not goes_on(int(pid))
    assert f"sleep ({pid}), which is stopped with it" in running.printed()
    assert rows("SELECT status, losses FROM worker_tasks WHERE task_id = :id", id=call.id) == [BACK]


@pytest.mark.parametrize("pool", EACH)
def test_what_a_handler_has_left_behind_is_named_as_its_worker_ends(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    running = worker("-P", pool, "-c", "1", "-Q", "starting", CELERIAC_DRAIN_GRACE_MS="60000")
    shop.starting.delay(0).get(timeout=30)
    ((pid,),) = rows("SELECT what FROM ran")
    assert running.stop() == 0
    try:
        assert goes_on(int(pid))
        assert f"sleep ({pid}), which its tasks may have started, goes on" in running.printed()
    finally:
        os.kill(int(pid), signal.SIGKILL)
