"""A task that kills its process costs those of its ticket that never began nothing, also where all of a worker dies."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.processes import Rows, Running, until

Worker = Callable[..., Running]


BY_NIGHT = pytest.mark.nightly(
    "two workers more; prefork has processes of its own, and solo the worker's as these have"
)

POOLS = ["prefork", "solo", *(pytest.param(pool, marks=BY_NIGHT) for pool in ("threads", "gevent", "asyncio"))]


@pytest.mark.parametrize("pool", POOLS)
def test_neighbours_of_a_killer_that_never_began_run_without_a_loss(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    """With `max_losses=1` a loss would fail them. In the worker's own process the killer takes all of it."""
    running = worker("-P", pool, "-c", "1", "-Q", "deadly")
    with shop.app.database.transaction() as connection:
        calls = [shop.deadly.apply_async((n == 2,), connection=connection).id for n in range(10)]
    if pool != "prefork":
        until(lambda: running.process.poll() is not None, "the worker to die")
        worker("-P", pool, "-c", "1", "-Q", "deadly")
    until(lambda: rows.one("SELECT count(*) FROM history") == len(calls), "all to end")
    ended = {task: (status, losses) for task, status, losses in rows("SELECT task_id, status, losses FROM history")}
    assert ended[calls[2]] == ("failed", 1)
    assert [ended[call] for call in calls[3:]] == [("completed", 0)] * 7


@BY_NIGHT
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "asyncio"])
def test_those_beside_a_killer_in_other_slots_are_charged_only_where_they_had_begun(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    """Two run beside it for a while. In a process of their own they go on; else each of them is lost once with it."""
    running = worker("-P", pool, "-c", "3", "-Q", "slow,deadly")
    beside = shop.slow.bulk([(2.0,)] * 2)
    until(lambda: rows.one("SELECT count(*) FROM ran WHERE what = 'begin'") == 2, "those beside to begin")
    with shop.app.database.transaction() as connection:
        calls = [shop.deadly.apply_async((n == 0,), connection=connection).id for n in range(10)]
    if pool != "prefork":
        until(lambda: running.process.poll() is not None, "the worker to die")
        worker("-P", pool, "-c", "3", "-Q", "slow,deadly")
    until(lambda: rows.one("SELECT count(*) FROM history") == 12, "all to end")
    ended = {task: (status, losses) for task, status, losses in rows("SELECT task_id, status, losses FROM history")}
    assert [ended[call.id] for call in beside] == [("completed", pool != "prefork")] * 2
    assert ended[calls[0]] == ("failed", 1)
    assert [ended[call] for call in calls[1:]] == [("completed", 0)] * 9
