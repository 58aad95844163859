"""Remote control acts on rows and tells of rows, whoever sends it: this app, a stock app on the same Redis, a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from celery import Celery

from celeriac import insights
from celeriac.errors import BadValue, NotSupported, Unknown
from tests import processes
from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.processes import PATIENCE, ROOT, Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]

#: A busy machine's worker answers late.
ANSWER: Any = {"reply": True, "timeout": PATIENCE, "limit": 1}

#: Of a worker that takes limits from whoever may write to Redis.
STORES = {"CELERIAC_REMOTE_CONTROL": "store"}

STATUS = "SELECT status FROM worker_tasks WHERE task_id = :id"


def status(rows: Rows, task: Any) -> str:
    return str(rows.one(STATUS, id=task.id))


def runs(rows: Rows, task: Any) -> bool:
    return bool(rows("SELECT FROM ran WHERE task_id = :id", id=task.id))


def only(replies: Any) -> Any:
    """The one worker's."""
    ((reply,),) = [list(r.values()) for r in (replies if isinstance(replies, list) else [replies])]
    return reply


def test_revoke_cancels_what_waits_and_needs_no_worker(shop: ModuleType, rows: Rows) -> None:
    waits, planned = shop.add.delay(1), shop.add.apply_async((1,), countdown=1000)
    waits.revoke()
    assert shop.app.control.revoke([planned.id, "no-such-task"], reply=True) == [
        {shop.app.process_name: {"ok": f"cancelled: {planned.id}"}}
    ]
    assert [status(rows, waits), status(rows, planned)] == ["cancelled", "cancelled"]
    assert rows("SELECT DISTINCT kind, by, why FROM task_events") == [("cancel", shop.app.process_name, "revoked")]


def test_what_runs_is_stopped_only_with_terminate(shop: ModuleType, worker: Worker, rows: Rows) -> None:
    worker("-c", "1")
    task = shop.slow.delay(30.0)
    until(lambda: runs(rows, task), "the task to run")
    task.revoke()
    assert rows.one("SELECT cancel_requested_at IS NULL FROM tasks") is True
    task.revoke(terminate=True)
    until(lambda: status(rows, task) == "cancelled", "the cancellation")
    shop.app.control.terminate(task.id)
    assert rows.one("SELECT count(*) FROM task_events WHERE kind = 'cancel'") == 1


def test_a_stock_app_on_the_same_broker_cancels_rows(
    shop: ModuleType, worker: Worker, rows: Rows, other: Celery
) -> None:
    worker("-c", "1")
    task, planned = shop.slow.delay(30.0), shop.add.apply_async((1,), countdown=1000)
    until(lambda: runs(rows, task), "the task to run")
    told = only(other.control.revoke([task.id, planned.id, 7], **ANSWER))
    assert told == {"ok": f"cancelled: {planned.id}"}
    told = only(other.control.revoke(task.id, terminate=1, **ANSWER, signal="SIGKILL"))
    assert told == {"ok": f"asked to stop: {task.id}"}
    until(lambda: status(rows, task) == "cancelled", "the cancellation")
    assert "nothing to cancel" in only(other.control.terminate(task.id, **ANSWER))["ok"]
    trail = "SELECT via, action, target, after ->> 'status' FROM audit WHERE by LIKE 'remote control at %' ORDER BY id"
    assert rows(trail) == [
        ("remote control", "revoke", planned.id, "cancelled"), ("remote control", "revoke", task.id, "asked"),
    ]  # fmt: skip
    assert "it needs store" in only(other.control.rate_limit("add", "1/h", **ANSWER))["error"]
    assert rows("SELECT FROM role_limits WHERE rate_limit IS NOT NULL") == []
    assert rows.one("SELECT count(*) FROM task_events WHERE kind = 'cancel'") == 2


@pytest.mark.usefixtures("alone")
def test_stamped_rows_are_revoked_by_their_stamps(shop: ModuleType, worker: Worker, rows: Rows, other: Celery) -> None:
    tasks = [shop.add.apply_async((n,), countdown=1000) for n in range(4)]
    for task, stamp in zip(tasks, ('["a", "b"]', '"b"', '"c"'), strict=False):
        rows(
            "UPDATE tasks SET headers = jsonb_build_object('canvas', jsonb_build_object('stamps',"
            " jsonb_build_object('monitoring', CAST(:stamp AS jsonb)))) WHERE task_id = :id",
            stamp=stamp, id=task.id,
        )  # fmt: skip
    shop.app.control.revoke_by_stamped_headers({"monitoring": ["a", "x"], "other": "c"})
    assert [status(rows, task) for task in tasks] == ["cancelled", "pending", "pending", "pending"]
    worker("-c", "1")
    until(lambda: other.control.ping(timeout=1, limit=1), "it to hear")
    told = only(other.control.revoke_by_stamped_headers({"monitoring": "b"}, **ANSWER))
    assert told == {"ok": f"cancelled: {tasks[1].id}"}
    assert [status(rows, task) for task in tasks] == ["cancelled", "cancelled", "pending", "pending"]


def celery(module: str, database_url: str, redis_url: str, *command: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "DATABASE_URL": database_url, "REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    return processes.finished([sys.executable, "-m", "celery", "-A", module, *command], given)


def test_the_command_line_revokes_rows(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str, redis_url: str
) -> None:
    worker("-c", "1")
    task = shop.add.apply_async((1,), countdown=1000)
    done = celery("tests.end_to_end.shop", database_url, redis_url, "control", "revoke", task.id)
    assert done.returncode == 0, done.stderr
    assert f"cancelled: {task.id}" in done.stdout
    assert status(rows, task) == "cancelled"


def test_purge_is_refused_and_says_what_to_do(shop: ModuleType, rows: Rows, database_url: str, redis_url: str) -> None:
    shop.app.conf.broker_url = redis_url
    with pytest.raises(NotSupported, match="celeriac tasks cancel"):
        shop.app.control.purge()
    done = celery("tests.end_to_end.shop", database_url, redis_url, "purge", "-f")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: purge: queues in Redis hold tickets")
    assert "Traceback" not in done.stderr


# -- inspect -----------------------------------------------------------------------------------------------------------


def test_inspect_tells_of_rows(shop: ModuleType, worker: Worker, rows: Rows, other: Celery) -> None:
    running = worker("-c", "1")
    (child,) = running.children()
    current = shop.slow.delay(30.0)
    until(lambda: runs(rows, current), "the task to run")
    waits = shop.slow.delay(30.0)
    planned = shop.mixed.apply_async((0.0,), countdown=1000, priority=7)
    gone = shop.mixed.apply_async((0.0,), countdown=1000)
    gone.revoke()
    inspect = other.control.inspect(timeout=PATIENCE, limit=1)
    (active,) = only(inspect.active())
    assert (active["id"], active["name"], active["args"], active["kwargs"]) == (
        current.id, "slow", [], {"seconds": 30.0},
    )  # fmt: skip
    assert (active["worker_pid"], active["acknowledged"]) == (child, True)
    assert active["hostname"].startswith("celery@")
    assert active["time_start"] == pytest.approx(
        float(rows.one("SELECT extract(epoch FROM max(at)) FROM ran WHERE task_id = :id", id=current.id)), abs=2
    )
    assert only(inspect.reserved()) == [], "who has no room takes no ticket"
    (later,) = only(inspect.scheduled())
    assert (later["request"]["id"], later["priority"], later["eta"][:2]) == (planned.id, 6, "20")
    assert (later["request"]["acknowledged"], later["request"]["delivery_info"]["priority"]) == (False, 7)
    assert only(inspect.revoked()) == [gone.id]
    words = {i: word for i, (word, _) in only(inspect.query_task(current.id, waits.id, planned.id, gone.id)).items()}
    assert words == {current.id: "active", planned.id: "scheduled"}
    assert "celeriac.ticket" not in str(only(inspect.registered()))
    assert "slow" in str(only(inspect.registered()))
    shop.app.cancel(current.id)
    until(lambda: status(rows, current) == "cancelled", "it to end")


@pytest.mark.usefixtures("alone")
def test_a_ticket_is_nobodys_task_to_inspect(shop: ModuleType, worker: Worker, other: Celery) -> None:
    worker("-c", "1")
    until(lambda: other.control.ping(timeout=1, limit=1), "it to hear")
    inspect = other.control.inspect(timeout=PATIENCE, limit=1)
    answers = [inspect.active(), inspect.reserved(), inspect.scheduled(), inspect.revoked(), inspect.stats()]
    assert [only(answer) for answer in answers[:-1]] == [[], [], [], []]
    assert only(answers[-1])["total"] == {}


def test_the_other_tasks_of_a_ticket_are_reserved(shop: ModuleType, worker: Worker, other: Celery) -> None:
    worker("-c", "1")
    ids = {task.id for task in shop.mixed.bulk([(1.0,)] * 20)}
    inspect = other.control.inspect(timeout=PATIENCE, limit=1)
    until(lambda: only(inspect.active()), "one to run: until then each of them may be reserved")
    held = {told["id"] for told in until(lambda: only(inspect.reserved()), "some to be reserved")}
    assert held <= ids
    assert 1 <= len(held) < 20, "one runs, nine wait in its ticket; the other ticket may be here by now"
    words = until(lambda: only(inspect.query_task(*ids)), "some to be held")
    assert {word for word, _ in words.values()} <= {"active", "reserved"}


def test_a_rate_that_is_set_holds_for_the_role(shop: ModuleType, worker: Worker, rows: Rows, other: Celery) -> None:
    worker("-c", "2", **STORES)
    until(lambda: other.control.ping(timeout=1, limit=1), "it to hear")
    assert only(other.control.rate_limit("add", "1/h", **ANSWER)) == {"ok": "add: rate_limit=1/h, timeout=300.0"}
    for _ in range(3):
        shop.add.delay(1)
    done = "SELECT count(*) FROM worker_tasks WHERE status = 'completed'"
    until(lambda: rows.one(done) == 1, "the one it lets begin")

    def why() -> str | None:
        with shop.app.database.statement() as connection:
            return insights.history(connection, rows.one("SELECT min(id) FROM tasks")).why

    until(lambda: why() == "as many tasks of its role have begun as its rate lets: 1/h", "the others to wait")
    unlimited = {"ok": "add: timeout=300.0"}
    assert shop.app.control.rate_limit("add", 0, reply=True) == [{shop.app.process_name: unlimited}]
    until(lambda: rows.one(done) == 3, "the others")


def test_time_limits_that_are_set_hold_for_the_role(
    shop: ModuleType, worker: Worker, rows: Rows, other: Celery
) -> None:
    worker("-c", "1", **STORES)
    until(lambda: other.control.ping(timeout=1, limit=1), "it to hear")
    assert only(other.control.time_limit("slow", soft=0.2, **ANSWER)) == {"ok": "slow: timeout=0.2"}
    task = shop.slow.apply_async((30.0,), max_retries=0)
    until(lambda: status(rows, task) == "failed", "the time limit")
    assert "SoftTimeLimitExceeded" in str(rows.one("SELECT error_message FROM worker_tasks"))


def test_limits_of_no_role_and_no_limits_are_refused(shop: ModuleType, worker: Worker, other: Celery) -> None:
    worker("-c", "1", **STORES)
    until(lambda: other.control.ping(timeout=1, limit=1), "it to hear")
    assert only(other.control.rate_limit("nobody", "1/m", **ANSWER))["error"].startswith("no role 'nobody'")
    assert "give a number a second" in only(other.control.rate_limit("add", "often", **ANSWER))["error"]
    with pytest.raises(Unknown, match="no role 'nobody'"):
        shop.app.control.rate_limit("nobody", "1/m")
    with pytest.raises(BadValue, match="give seconds"):
        shop.app.control.time_limit("add", -1)


def test_workers_that_hear_of_the_same_revoke_cancel_once(
    shop: ModuleType, worker: Worker, rows: Rows, other: Celery
) -> None:
    worker("-c", "1", "-Q", "slow", "-n", "a@%h")
    worker("-c", "1", "-Q", "slow", "-n", "b@%h")
    until(lambda: len(other.control.ping()) == 2, "both workers")
    task = shop.slow.delay(30.0)
    until(lambda: runs(rows, task), "the task to run")
    assert len(other.control.revoke(task.id, terminate=True, reply=True, timeout=PATIENCE, limit=2)) == 2
    until(lambda: status(rows, task) == "cancelled", "the cancellation")
    assert rows.one("SELECT count(*) FROM task_events WHERE kind = 'cancel'") == 1
