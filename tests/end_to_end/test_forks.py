"""A process that a handler forks is a caller of its own: it ends nothing, and stops nothing, of its parent."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from celeriac import Celeriac
from tests.end_to_end import forking
from tests.end_to_end.conftest import beside
from tests.processes import EXECUTED, Rows, Running, until

POOLS = ["prefork", "solo", "threads", "gevent", "asyncio"]


@pytest.fixture
def app(shop: ModuleType) -> Iterator[Celeriac]:
    """The forking tasks' app on this test's servers."""
    with beside(shop, forking.app) as app:
        yield app


@pytest.mark.timeout(300)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.usefixtures("app")
def test_what_forked_children_call_comes_and_their_end_ends_nothing_else(
    worker: Callable[..., Running], rows: Rows, pool: str
) -> None:
    queues = "forks,terminates,made,beside,over"
    running = worker("-P", pool, "-c", "3", "-Q", queues, module="tests.end_to_end.forking")
    neighbours = [] if pool == "solo" else [forking.beside.delay()]
    until(lambda: not neighbours or rows("SELECT FROM worker_tasks WHERE status = 'running'"), "its neighbour to begin")
    ways = [way for way in forking.WAYS if can(pool, way)]
    terminated = [forking.terminates.delay(with_pool=can(pool, "pool"))]
    calls = {way: forking.forks.delay(way) for way in ways}
    assert [call.get(timeout=120) for call in terminated] == ["done"] * len(terminated)
    assert {way: call.get(timeout=120) for way, call in calls.items()} == dict.fromkeys(calls, "parent")
    wanted = sorted(f"made by {way}" for way in ways)
    until(lambda: sorted(what for (what,) in rows("SELECT what FROM ran WHERE role = 'made'")) == wanted, "their calls")
    forking.over.delay()
    assert [call.get(timeout=120) for call in neighbours] == [None] * len(neighbours)
    assert rows("SELECT what FROM ran WHERE role = 'beside'") == [("beside",)] * len(neighbours)
    assert rows("SELECT FROM history WHERE losses > 0") == []
    assert running.process.poll() is None
    assert running.stop() == 0


def can(pool: str, way: str) -> bool:
    """With gevent, what reads the results of a `multiprocessing.Pool` blocks all of its process: docs/handlers.md."""
    return pool != "gevent" or way != "pool"


#: By day a pool of processes, and one whose tasks share the worker's own.
BY_NIGHT = pytest.mark.nightly("a worker more, whose children are as those of prefork or of threads")
BY_DAY = ("prefork", "threads")


def each(*pools: str) -> list[object]:
    return [pool if pool in BY_DAY else pytest.param(pool, marks=BY_NIGHT) for pool in pools]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("pool", each("prefork", "solo", "threads", "asyncio"))
@pytest.mark.usefixtures("app")
def test_what_children_of_coroutines_call_comes_and_their_end_ends_nothing_else(
    worker: Callable[..., Running], rows: Rows, pool: str
) -> None:
    running = worker("-P", pool, "-c", "3", "-Q", "forks_on_loop,made", module="tests.end_to_end.forking")
    calls = {way: forking.forks_on_loop.delay(way) for way in forking.WAYS}
    assert {way: call.get(timeout=60) for way, call in calls.items()} == dict.fromkeys(calls, "parent")
    wanted = sorted(f"made by {way}" for way in forking.WAYS)
    until(lambda: sorted(what for (what,) in rows("SELECT what FROM ran WHERE role = 'made'")) == wanted, "their calls")
    assert rows("SELECT FROM history WHERE losses > 0") == []
    assert running.process.poll() is None
    assert running.stop() == 0


@BY_NIGHT
@pytest.mark.usefixtures("app")
def test_with_gevent_a_coroutine_that_forks_fails_and_nothing_else(worker: Callable[..., Running], rows: Rows) -> None:
    """It has a thread of its own, where gevent's `os.fork` refuses once the child is there, whose own call runs."""
    running = worker("-P", "gevent", "-c", "3", "-Q", "forks_on_loop,made", module="tests.end_to_end.forking")
    with pytest.raises(TypeError, match="child watchers are only available on the default loop"):
        forking.forks_on_loop.delay("process").get(timeout=60)
    assert rows("SELECT status, losses FROM history WHERE role = 'forks_on_loop'") == [("failed", 0)]
    assert forking.made.delay("one that goes on").get(timeout=60) == "one that goes on"
    assert running.stop() == 0


def ended_children(worker: Callable[..., Running], rows: Rows, pool: str, **environ: str) -> dict[str, dict[str, int]]:
    """How children ended that got a signal: at once, and later."""
    running = worker("-P", pool, "-c", "1", "-Q", "signals", module="tests.end_to_end.forking", **environ)
    calls = {when: forking.signals.delay(when) for when in ("at once", "later")}
    ended = {when: call.get(timeout=60) for when, call in calls.items()}
    assert rows("SELECT FROM history WHERE losses > 0") == []
    assert running.process.poll() is None
    assert running.stop() == 0
    return ended


KILLED = {name: -signal.Signals[name] for name in forking.SIGNALS}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("pool", each(*POOLS))
@pytest.mark.usefixtures("app")
def test_a_signal_to_a_forked_child_ends_it_as_it_ends_any_program(
    worker: Callable[..., Running], rows: Rows, pool: str
) -> None:
    assert ended_children(worker, rows, pool) == {"at once": KILLED, "later": KILLED}


@BY_NIGHT
@pytest.mark.usefixtures("app")
def test_where_a_pool_ignores_a_signal_more_its_children_hear_it(worker: Callable[..., Running], rows: Rows) -> None:
    """SIGTERM: without it `terminate()` ends no child there, and `with Pool()` waits for ever."""
    remapped = {"REMAP_SIGTERM": "SIGQUIT", EXECUTED: "1"}
    assert ended_children(worker, rows, "prefork", **remapped) == {"at once": KILLED, "later": KILLED}
