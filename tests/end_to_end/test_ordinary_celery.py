"""An ordinary Celery module runs unchanged but for the app's class."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from celery import chain, chord, group
from celery.result import AsyncResult

from celeriac import Settings
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]


@pytest.fixture
def ordinary(database_url: str, redis_url: str, rows: Rows) -> Iterator[ModuleType]:
    module = importlib.import_module("tests.end_to_end.ordinary")
    app = module.app
    for name in ("database", "publisher", "enqueuer", "by_name", "clocks"):
        app.__dict__.pop(name, None)
    app.settings = Settings.from_environ({**QUICK, "DATABASE_URL": database_url, "REDIS_URL": redis_url})
    app.conf.broker_url = redis_url
    yield module
    app.publisher.close()
    app.database.dispose()


@pytest.fixture
def running(worker: Worker) -> Running:
    return worker("-c", "2", module="tests.end_to_end.ordinary")


def notes(rows: Rows, *names: str) -> list[tuple[str, dict[str, object]]]:
    found = rows("SELECT task_id, what FROM ran WHERE role = 'note' ORDER BY n")
    return [(str(n), json.loads(str(w))) for n, w in found if not names or n in names]


def test_bound_tasks_custom_classes_hooks_and_signals(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    result = ordinary.hooked.delay(5)
    assert result.get(timeout=20) == {
        "x": 5, "greeting": "hello from ordinary.hooked", "id": result.id, "retries": 0,
    }  # fmt: skip
    until(lambda: notes(rows, "after_return"), "the hooks")
    assert [name for name, _ in notes(rows)] == ["before_start", "on_success", "task_success", "after_return"]
    assert notes(rows, "before_start") == [("before_start", {"args": [5], "kwargs": {}})]


def test_a_failure_reaches_hooks_signals_and_the_caller(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    with pytest.raises(KeyError, match="asked to"):
        ordinary.hooked.delay(5, fail=True).get(timeout=20)
    until(lambda: notes(rows, "after_return"), "the hooks")
    assert [name for name, _ in notes(rows)] == ["before_start", "on_failure", "task_failure", "after_return"]


def test_autoretry_runs_its_retries_and_then_fails(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    with pytest.raises(ConnectionError):
        ordinary.auto.delay().get(timeout=30)
    assert len(notes(rows, "auto")) == 3
    until(lambda: notes(rows, "task_failure"), "the last signal")
    assert len(notes(rows, "task_retry")) == 2
    assert rows("SELECT status, retry_count FROM worker_tasks") == [("failed", 2)]


def test_retry_with_new_arguments(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    assert ordinary.manual.delay(left=2).get(timeout=30) == 2
    until(lambda: notes(rows, "after_return"), "the hooks")
    assert len(notes(rows, "on_retry")) == 2
    assert rows.one("SELECT count(*) FROM worker_tasks") == 1


def test_countdown_and_eta_wait_in_sql(ordinary: ModuleType, rows: Rows) -> None:
    ordinary.unnamed.apply_async((1,), countdown=60)
    ordinary.unnamed.apply_async((2,), eta=datetime.now(UTC) + timedelta(hours=1))
    waits = rows(
        "SELECT waits_for, round(extract(epoch FROM scheduled_for - now()) / 60) FROM worker_tasks ORDER BY id"
    )
    assert waits == [("time", 1), ("time", 60)]


def test_expires_task_id_and_send_task(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    ordinary.unnamed.apply_async((1,), task_id="mine", expires=3600)
    result = ordinary.app.send_task("ordinary.classy", args=(6, 7), countdown=0.05)
    assert AsyncResult("mine", app=ordinary.app).get(timeout=20) == [[1], {}]
    assert result.get(timeout=20) == 42
    assert rows.one(
        "SELECT expires_at - created_at BETWEEN '59 min' AND '61 min' FROM worker_tasks WHERE task_id = 'mine'"
    )


def test_dates_come_back_as_dates(ordinary: ModuleType, running: Running) -> None:
    now = datetime.now(UTC)
    assert ordinary.when.delay(now).get(timeout=20) == now


def test_ignore_and_reject_end_the_task(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    ordinary.ignoring.delay()
    ordinary.rejecting.delay()
    until(lambda: not rows("SELECT FROM worker_tasks WHERE completed_at IS NULL"), "both to end")
    assert rows("SELECT role, status FROM worker_tasks ORDER BY role") == [
        ("ordinary.ignoring", "completed"), ("ordinary.rejecting", "failed"),
    ]  # fmt: skip


ONE, TWO, THREE = ([[n], {}] for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("call", "gives"),
    [
        (lambda t: chain(t.s(1), t.s(2)).delay(), [[ONE, 2], {}]),
        (lambda t: group(t.s(1), t.s(2)).delay(), [ONE, TWO]),
        (lambda t: chord([t.s(1), t.s(2)], t.s()).delay(), [[[ONE, TWO]], {}]),
        (lambda t: t.map([1, 2]).delay(), [ONE, TWO]),
        (lambda t: t.starmap([(1,), (2,)]).apply_async(), [ONE, TWO]),
        (lambda t: t.chunks([(1,), (2,), (3,)], 2).apply_async(), [[ONE, TWO], [THREE]]),
    ],
    ids=["chain", "group", "chord", "map", "starmap", "chunks"],
)
def test_a_workflow_gives_what_it_gives_on_celery(
    ordinary: ModuleType, running: Running, call: Callable[[Any], Any], gives: Any
) -> None:
    assert call(ordinary.unnamed).get(timeout=20) == gives


def test_links_come_after_their_task(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    ordinary.unnamed.apply_async((1,), link=ordinary.unnamed.s(2), link_error=ordinary.unnamed.s(3))
    until(lambda: rows.one("SELECT count(*) FROM worker_tasks WHERE status = 'completed'") == 2, "the link to end")
    assert rows("SELECT result FROM worker_tasks ORDER BY id") == [(ONE,), ([[ONE, 2], {}],)]


def test_a_task_is_replaced_under_its_id(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    replaced = ordinary.replaced.delay()
    assert replaced.get(timeout=20) == ONE
    assert rows("SELECT task_id, role FROM worker_tasks") == [(replaced.id, ordinary.unnamed.name)]


def test_a_signature_and_an_eager_call_still_work(ordinary: ModuleType, running: Running) -> None:
    assert ordinary.unnamed.s(1, k=2).delay().get(timeout=20) == [[1], {"k": 2}]
    assert ordinary.unnamed.apply((3,)).get() == [[3], {}]
    assert ordinary.unnamed(4) == [[4], {}]


def test_a_revoked_task_reaches_its_signal(ordinary: ModuleType, running: Running, rows: Rows) -> None:
    result = ordinary.waiting.delay()
    until(lambda: rows("SELECT FROM worker_tasks WHERE status = 'running'"), "the task to run")
    result.revoke(terminate=True)
    until(lambda: notes(rows, "task_revoked"), "the signal")
    assert notes(rows, "task_revoked") == [
        ("task_revoked", {"sender": "ordinary.waiting", "id": result.id, "terminated": True, "expired": False})
    ]


def test_a_routed_task_runs_at_the_worker_of_its_queue(ordinary: ModuleType, worker: Worker, rows: Rows) -> None:
    worker("-c", "1", "-Q", "sidings", module="tests.end_to_end.ordinary")
    assert ordinary.shunted.apply_async((5,), retry=False, ignore_result=False).get(timeout=20) == 5
