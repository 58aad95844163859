"""A process that a handler forks is a caller of its own: it ends nothing, and stops nothing, of its parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from celeriac import Celeriac
from tests.end_to_end import forking
from tests.processes import Rows, Running, until

POOLS = ["prefork", "solo", "threads", "gevent", "asyncio"]


@pytest.fixture
def app(shop: ModuleType) -> Iterator[Celeriac]:
    """The forking tasks' app on this test's servers."""
    app = forking.app
    for name in ("database", "publisher", "enqueuer", "by_name", "clocks", "limited", "tally"):
        app.__dict__.pop(name, None)
    app.settings, app.conf.broker_url = shop.app.settings, shop.app.conf.broker_url
    app.register_roles()
    yield app
    app.publisher.close()
    app.database.dispose()


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
    terminated = [] if pool == "prefork" else [forking.terminates.delay(with_pool=can(pool, "pool"))]
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
    """The processes of Celery's pool are daemons, which may have no children but by `os.fork`. With gevent, what reads
    the results of a `multiprocessing.Pool` blocks all of the process; see docs/handlers.md.
    """
    return way.startswith("fork ") if pool == "prefork" else pool != "gevent" or way != "pool"
