"""A process that has used up its file descriptors begins nothing more, fails no task, and another takes its place."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from tests.processes import Rows, Running, until

Worker = Callable[..., Running]

ENDED = "SELECT count(*) FROM worker_tasks WHERE status IN ('completed', 'failed')"


def test_what_shares_a_process_with_one_that_spills_descriptors_is_not_failed(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    shop.spiller.bulk([(8,)] * 40)
    running = worker("-c", "2")
    until(lambda: rows.one(ENDED) == 40, "all to end")
    assert rows("SELECT DISTINCT status, losses, retry_count FROM worker_tasks") == [("completed", 0, 0)]
    until(lambda: "makes way for another" in running.printed(), "it to say so")
    assert "exited with" not in running.printed()


def test_a_worker_that_runs_its_tasks_itself_ends_in_good_order(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    shop.spiller.bulk([(8,)] * 40)
    running = worker("-P", "solo")
    until(lambda: running.process.poll() is not None, "it to end")
    assert "has hardly a file descriptor left" in running.printed()
    assert rows.one("SELECT coalesce(max(losses), 0) FROM worker_tasks") == 0
    assert rows("SELECT FROM tickets WHERE worker_id IS NOT NULL") == []
