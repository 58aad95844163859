"""A task that kills its process costs those of its ticket that never began nothing, also where all of a worker dies."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.processes import Rows, Running, until

Worker = Callable[..., Running]


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_neighbours_of_a_killer_that_never_began_run_without_a_loss(
    shop: ModuleType, worker: Worker, rows: Rows, pool: str
) -> None:
    """With `max_losses=1` a loss would fail them. In the worker's own process the killer takes all of it."""
    running = worker("-P", pool, "-c", "1", "-Q", "deadly")
    with shop.app.database.transaction() as connection:
        calls = [shop.deadly.apply_async((n == 2,), connection=connection).id for n in range(10)]
    if pool == "solo":
        until(lambda: running.process.poll() is not None, "the worker to die")
        worker("-P", pool, "-c", "1", "-Q", "deadly")
    until(lambda: rows.one("SELECT count(*) FROM history") == len(calls), "all to end")
    ended = {task: (status, losses) for task, status, losses in rows("SELECT task_id, status, losses FROM history")}
    assert ended[calls[2]] == ("failed", 1)
    assert [ended[call] for call in calls[3:]] == [("completed", 0)] * 7
