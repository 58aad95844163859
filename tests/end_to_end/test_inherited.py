"""What a process that a handler forks inherits of its parent, and gives up: connections, locks, addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from types import ModuleType

import psutil
import pytest

from celeriac import Celeriac
from tests.end_to_end import inheriting
from tests.end_to_end.conftest import beside
from tests.processes import Rows, Running, until

BY_NIGHT = pytest.mark.nightly("a worker more, whose children are as those of prefork or of threads")
POOLS = ["prefork", "threads", *(pytest.param(pool, marks=BY_NIGHT) for pool in ("solo", "gevent"))]


@pytest.fixture
def app(shop: ModuleType, rows: Rows) -> Iterator[Celeriac]:
    """The tasks' app on this test's servers. What outlives its parent is ended afterwards."""
    with beside(shop, inheriting.app) as app:
        rows("CREATE TABLE once (n int UNIQUE)")
        yield app
        for (pid,) in rows("SELECT pid FROM ran WHERE what = 'outlives'"):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(int(pid)).kill()


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.usefixtures("app")
def test_a_forked_child_does_nothing_to_its_parents_session(
    worker: Callable[..., Running], rows: Rows, pool: str
) -> None:
    running = worker("-P", pool, "-c", "2", "-Q", "uses", module="tests.end_to_end.inheriting")
    calls = {way: inheriting.uses.delay(way) for way in inheriting.WAYS}
    assert {way: call.get(timeout=60) for way, call in calls.items()} == dict.fromkeys(calls, "parent")
    wrote = rows("SELECT task_id, count(*) FROM ran WHERE what = 'parent' GROUP BY task_id")
    assert dict(wrote) == {call.id: 2 for call in calls.values()}
    assert rows("SELECT what FROM ran WHERE what = 'child'") == []
    assert rows("SELECT FROM history WHERE losses > 0") == []
    assert running.stop() == 0
    told = running.printed()
    assert "may not use the handler's session" in told, told[-3000:]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.usefixtures("app")
def test_a_child_that_outlives_its_killed_parent_holds_nothing_of_it(
    worker: Callable[..., Running], rows: Rows, pool: str
) -> None:
    """Neither the row that its transaction wrote, nor the trace of what it had begun, nor the worker's port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    given = ("-P", pool, "-c", "1", "-Q", "outlived,beside")
    of_module = {"module": "tests.end_to_end.inheriting", "CELERIAC_METRICS_ADDRESS": address}
    running = worker(*given, **of_module)
    with inheriting.app.database.transaction() as connection:
        first = inheriting.outlived.apply_async(connection=connection)
        others = [inheriting.beside.apply_async(connection=connection) for _ in range(3)]
    if pool != "prefork":
        until(lambda: running.process.poll() is not None, "the worker to die")
        running = worker(*given, **of_module)
    assert first.get(timeout=30) == "again"
    assert [other.get(timeout=30) for other in others] == [None] * len(others)
    ended = dict(rows("SELECT task_id, losses FROM history"))
    assert ended == {first.id: 1, **{other.id: 0 for other in others}}
    assert "nobody listens there" not in running.printed()
    assert running.stop() == 0
