"""Enqueue to settled, through a real Celery worker."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from tests.processes import Rows, Running, until

Worker = Callable[..., Running]


def test_a_task_enqueued_here_runs_there_and_its_result_comes_back(shop: ModuleType, worker: Worker) -> None:
    worker()
    result = shop.add.delay(2, b=3)
    assert result.is_new
    assert result.get(timeout=20) == 5


def test_a_task_that_fails_is_retried_in_sql_and_then_in_another_round(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    worker()
    result = shop.flaky.delay(4)
    assert result.get(timeout=30) == 5
    kinds = [kind for (kind,) in rows("SELECT kind FROM task_events ORDER BY id")]
    assert kinds == ["retry", "retry", "retry_round", "retry"]


def test_a_permanent_error_ends_the_task_at_once(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    shop.permanent.delay()
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'failed'"), "the failure")
    assert rows("SELECT error_message, (SELECT count(*) FROM ran) FROM worker_tasks") == [("Permanent: no use", 1)]
