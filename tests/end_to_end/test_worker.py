"""Enqueue to settled, through a real Celery worker."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from celeriac.operate.workers import decommission
from celeriac.run import shared
from celeriac.store.connections import Database
from celeriac.worker.memory import YOUNG
from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]


def test_a_task_enqueued_here_runs_there_and_its_result_comes_back(shop: ModuleType, worker: Worker) -> None:
    worker()
    result = shop.add.delay(2, b=3)
    assert result.is_new
    assert result.get(timeout=20) == 5


def test_its_processes_look_for_garbage_less_often(shop: ModuleType, worker: Worker) -> None:
    worker()
    assert shop.garbage.delay().get(timeout=20)[0] == YOUNG


def test_a_task_that_fails_is_retried_in_sql_and_then_in_another_round(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    worker()
    result = shop.flaky.delay(4)
    assert result.get(timeout=30) == 5
    kinds = [kind for (kind,) in rows("SELECT kind FROM celeriac.task_events ORDER BY id")]
    assert kinds == ["retry", "retry", "retry_round", "retry"]


def test_a_permanent_error_ends_the_task_at_once(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    shop.permanent.delay()
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'failed'"), "the failure")
    assert rows("SELECT error_message, (SELECT count(*) FROM ran) FROM worker_tasks") == [("Permanent: no use", 1)]


def test_follow_ups_and_own_writes_commit_with_the_outcome(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    shop.parent.delay()
    until(lambda: rows("SELECT FROM worker_tasks WHERE role = 'add' AND status = 'completed'"), "the follow-up")
    assert rows.one("SELECT count(*) FROM ran WHERE what = 'wrote'") == 1
    assert rows.one(
        "SELECT parent_id = (SELECT id FROM worker_tasks WHERE role = 'parent') FROM worker_tasks WHERE role = 'add'"
    )


def test_a_failed_attempt_takes_its_follow_ups_and_writes_with_it(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    shop.parent.delay(fail=True)
    until(lambda: rows("SELECT FROM worker_tasks WHERE role = 'parent' AND status = 'failed'"), "the failure")
    assert rows.one("SELECT count(*) FROM ran WHERE what = 'wrote'") == 0
    assert rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'add'") == 0


def test_a_snooze_burns_no_attempt(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    assert shop.snoozer.delay().get(timeout=30) == "awake"
    assert rows("SELECT retry_count, tries, losses FROM worker_tasks") == [(0, 0, 0)]
    assert rows("SELECT kind, why FROM celeriac.task_events") == [("snooze", "not yet")] * 2


def test_a_task_past_its_time_limit_fails(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    shop.limited.delay()
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'failed'"), "the time limit")
    assert str(rows.one("SELECT error_message FROM worker_tasks")).startswith("SoftTimeLimitExceeded")


def test_a_handler_that_ignores_its_limit_loses_its_process(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    running = worker()
    shop.limited.delay(stubborn=True)
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'failed'"), "the hard limit")
    assert str(rows.one("SELECT error_message FROM worker_tasks")).startswith("TimeLimitExceeded")
    child = rows.one("SELECT pid FROM ran")
    until(lambda: child not in running.children() and len(running.children()) == 2, "another process")
    assert shop.add.delay(1, 1).get(timeout=20) == 2


def test_a_handler_may_clean_up_until_its_hard_limit(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    """Its own is 30 s; the grace, which is for roles that declare none, is half a second here."""
    worker()
    assert send(shop, "tidy", 2.0).get(timeout=20) == "done"
    assert rows("SELECT what FROM ran ORDER BY n") == [("begin",), ("SoftTimeLimitExceeded",)]


def send(shop: ModuleType, role: str, seconds: float) -> Any:
    return shop.app.tasks[role].delay(seconds)


def test_progress_extends_the_limit(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    assert shop.limited.delay(progress=True).get(timeout=30) == "long, but alive"
    assert rows("SELECT progress FROM worker_tasks") == [({"step": 7},)]


def test_a_running_task_is_told_of_its_cancellation(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker()
    result = shop.slow.delay(60)
    until(lambda: rows("SELECT FROM ran WHERE what = 'begin'"), "the start")
    assert shop.app.cancel(result.id) == "asked"
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'cancelled'"), "the cancellation")
    assert not rows("SELECT FROM ran WHERE what = 'end'")


def test_long_tasks_in_one_ticket_do_not_wait_for_one_another(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    """Ten rows share a ticket; the first is long, so the rest goes to the other process."""
    worker()
    shop.mixed.bulk([(60,), *[(0,)] * 9])
    until(lambda: rows.one("SELECT count(*) = 9 FROM worker_tasks WHERE status = 'completed'"), "the nine short ones")
    assert rows("SELECT status FROM worker_tasks WHERE status <> 'completed'") == [("running",)]


@pytest.mark.usefixtures("alone")
def test_an_expired_task_never_starts(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    shop.slow.apply_async((1,), expires=0.001)
    worker()
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'cancelled'"), "the expiry")
    assert not rows("SELECT FROM ran")


#: Neither is near.
RARE = {"CELERIAC_TIME_LIMIT_GRACE_MS": "60000", "HEARTBEAT_INTERVAL_MS": "60000"}


@pytest.mark.parametrize(
    ("role", "told"), [("warned", ["SoftTimeLimitExceeded"]), ("unwarned", []), ("hurried", [])], ids=str
)
def test_a_hard_limit_ends_what_it_ends_on_time(
    shop: ModuleType, worker: Worker, rows: Rows, role: str, told: list[str]
) -> None:
    """A second, though neither the grace nor the next heartbeat is near; who has a soft limit is told of it first."""
    worker("-Q", "warned,unwarned,hurried", **RARE)
    until(lambda: rows("SELECT FROM celeriac.workers"), "the first heartbeat")
    send(shop, role, 15.0)
    until(lambda: rows("SELECT FROM worker_tasks WHERE status IN ('failed', 'completed')"), "the hard limit")
    ((error, seconds),) = rows(
        "SELECT error_message, extract(epoch FROM completed_at - started_at)::float FROM worker_tasks"
    )
    assert str(error).startswith("TimeLimitExceeded")
    assert 1 <= seconds < 10
    assert [what for (what,) in rows("SELECT what FROM ran ORDER BY n")] == ["begin", *told]


def test_a_worker_told_to_stop_finishes_what_it_can_and_hands_the_rest_back(
    shop: ModuleType, worker: Worker, rows: Rows
) -> None:
    running = worker("-c", "2")
    short, long = shop.slow.delay(0.8), shop.slow.delay(60)
    more = shop.slow.bulk([(0.1,)] * 5)
    until(lambda: rows.one("SELECT count(*) = 2 FROM ran WHERE what = 'begin'"), "two to run")
    assert running.stop() == 0
    assert short.status == "SUCCESS"
    assert rows("SELECT status, losses, retry_count FROM worker_tasks WHERE task_id = :id", id=long.id) == [
        ("pending", 0, 0)
    ]
    assert not rows("SELECT FROM worker_tasks WHERE status = 'running'")
    worker("-c", "2")
    until(lambda: all(r.status == "SUCCESS" for r in more), "the rest on another worker")


def test_a_decommissioned_worker_finishes_what_it_has_and_ends(
    shop: ModuleType, worker: Worker, rows: Rows, database: Database
) -> None:
    running = worker("-c", "1")
    name = str(rows.one("SELECT worker_id FROM celeriac.workers"))
    task = shop.slow.delay(0.8)
    until(lambda: rows("SELECT FROM ran WHERE what = 'begin'"), "the start")
    with database.statement() as connection:
        assert decommission(connection, name, by="test").before == {"status": "active"}
        assert decommission(connection, name, by="test").before == {"status": "draining"}
    assert running.process.wait(20) == 0
    assert task.status == "SUCCESS"
    assert rows("SELECT worker_id, status FROM celeriac.workers") == [(name, "stopped")]


def test_who_takes_over_a_name_releases_what_its_last_bearer_ran(
    shop: ModuleType, worker: Worker, rows: Rows, database: Database
) -> None:
    """A container that was killed and started anew has the host name and the process numbers of the last."""
    first = worker("-c", "1", WORKER_ID="node")
    task = shop.slow.delay(1.0)
    until(lambda: rows("SELECT FROM ran WHERE what = 'begin'"), "the start")
    with database.statement() as connection:
        decommission(connection, "node", by="test")
        first.kill()
    again = worker("-c", "1", WORKER_ID="node")
    until(lambda: task.status == "SUCCESS", "the task on the next worker")
    assert rows("SELECT kind, by FROM celeriac.task_events WHERE kind = 'worker_lost'") == [("worker_lost", "node")]
    assert rows("SELECT status FROM celeriac.workers") == [("active",)]
    assert again.process.poll() is None


def test_a_workers_own_name_is_never_anothers() -> None:
    assert shared.fresh_name() != shared.fresh_name()
    assert re.fullmatch(r"worker-product_resync-[0-9a-f]{8}", shared.fresh_name(["product_resync"]))
    assert re.fullmatch(r"worker-[0-9a-f]{8}", shared.fresh_name(["product_resync", "analytics_refresh"]))
