"""Why a task has not started, as it comes and goes with real workers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from celeriac.insights import Why
from tests.processes import Running, until

Worker = Callable[..., Running]


def test_it_is_told_through_a_workers_life_and_death(shop: ModuleType, worker: Worker) -> None:
    def why(task: str) -> Why:
        return shop.app.why(task)  # type: ignore[no-any-return]

    first = shop.slow.using(lock_key="k").delay(60.0)
    assert why(first.id).reason == "no_worker"
    running = worker("-c", "1")
    until(lambda: why(first.id).reason == "running", "it to run")
    second = shop.slow.using(lock_key="k").delay(0.01)
    assert why(second.id).reason == "lock"
    (lock,) = [check for check in why(second.id).checks if check.name == "lock"]
    assert (lock.facts["holder"], lock.facts["stale"], lock.facts["place"]) == (first.row_id, False, 1)
    third = shop.slow.delay(0.01)
    until(lambda: why(third.id).reason in ("in_queue", "taken"), "a pass to claim it for a worker that is busy")
    running.kill()
    until(lambda: "stale: its worker" in why(second.id).headline, "the lease to run out")
    shop.app.cancel(first.id)
    worker("-c", "1")
    for task in (second, third):
        until(lambda task=task: why(task.id).reason == "finished", "it to go on")  # type: ignore[misc]
