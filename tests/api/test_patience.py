"""Nobody's open transaction holds a request up: it is told to ask again, and then finds what that transaction left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, text

from celeriac.api.turns import OF_ONE_THERE
from celeriac.enqueue.insert import enqueue
from celeriac.operate import PATIENCE
from tests.api.server import Api, problem
from tests.api.test_enqueue import build
from tests.api.works import audited, row, task
from tests.postgres.conftest import new_task
from tests.processes import until

JOBS = "/api/admin/scheduled-jobs"

SUBREDDIT = "INSERT INTO subreddits (id, name) VALUES (1, 'askreddit') ON CONFLICT DO NOTHING"

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

TAKEN = "SELECT count(*) FROM worker_tasks WHERE unique_key = :key"

#: Method, path and body.
Call = tuple[str, str, dict[str, Any]]


@contextmanager
def open_transaction(api: Api) -> Iterator[Connection]:
    """It is rolled back."""
    with api.database.engine.connect() as connection:
        yield connection


def told_to_wait(api: Api, method: str, path: str, body: dict[str, Any]) -> None:
    began = time.monotonic()
    answer = api.ask(method, path, json=body)
    assert "open transaction" in problem(answer, 503)["detail"]
    assert answer.headers["retry-after"] == "1"
    assert time.monotonic() - began < PATIENCE + 3


def told_to_wait_at_once(api: Api, *calls: Call) -> None:
    """Each of them, beside the others."""
    with ThreadPoolExecutor(len(calls)) as callers:
        for told in [callers.submit(told_to_wait, api, *call) for call in calls]:
            told.result()


def test_an_enqueue_waits_briefly_for_somebodys_unique_key(api: Api) -> None:
    calls: dict[str, Call] = {
        "9301": ("POST", "/api/tasks", build(9301)),
        "9302": ("POST", "/api/tasks/bulk", {"tasks": [build(9303), build(9302)]}),
    }
    with open_transaction(api) as connection:
        enqueue(connection, [new_task("instasite_build", unique_key=key) for key in calls])
        told_to_wait_at_once(api, *calls.values())
        assert api.rows.one(TAKEN, key="9303") == 0
    for key, (_, path, body) in calls.items():
        api.post(path, body)
        assert api.rows.one(TAKEN, key=key) == 1


def test_an_operators_change_waits_briefly_for_somebodys_row(api: Api) -> None:
    held = [task(api, lock_key=f"held for long {n}") for n in range(3)]
    calls: list[Call] = [
        ("POST", "/api/tasks/prioritise", {"ids": held[:1], "priority": 9}),
        ("POST", "/api/tasks/cancel", {"ids": held[1:2]}),
        ("POST", "/api/tasks/cancel", {"filter": {"lock_key": "held for long 2"}, "dry_run": False}),
    ]
    with open_transaction(api) as connection:
        connection.execute(text("SELECT FROM celeriac.tasks WHERE id = ANY (:held) FOR UPDATE"), {"held": held})
        told_to_wait_at_once(api, *calls)
    for one, (method, path, body) in zip(held, calls, strict=True):
        assert row(api, one, "status, priority") == ("pending", 0)
        assert audited(api, "task", one) == []
        assert api.ask(method, path, json=body).is_success
        assert row(api, one, "status, priority") != ("pending", 0)


def test_a_policys_change_waits_briefly_for_somebodys_row(api: Api) -> None:
    api.post("/api/accounts/long held/pause", {"create": True})
    with open_transaction(api) as connection:
        connection.exec_driver_sql("SELECT FROM celeriac.account_policies WHERE account = 'long held' FOR UPDATE")
        told_to_wait(api, "POST", "/api/accounts/long held/resume", {})
    assert "long held" in paused(api), "it was told to come again, and nothing was changed"
    api.post("/api/accounts/long held/resume")
    assert "long held" not in paused(api)


def test_a_workers_report_waits_briefly_for_somebodys_row(api: Api) -> None:
    said = {"worker_id": "held worker", "hostname": "node"}
    api.post("/api/workers/heartbeat", said)
    with open_transaction(api) as connection:
        connection.exec_driver_sql("SELECT FROM celeriac.workers WHERE worker_id = 'held worker' FOR UPDATE")
        told_to_wait(api, "POST", "/api/workers/heartbeat", said)
    assert api.ask("POST", "/api/workers/heartbeat", json=said).is_success


def test_requests_that_wait_for_a_row_leave_room_for_others(api: Api) -> None:
    held = task(api)
    with open_transaction(api) as connection, ThreadPoolExecutor(60) as callers:
        connection.exec_driver_sql(f"SELECT FROM celeriac.tasks WHERE id = {held} FOR UPDATE")
        asked = [callers.submit(api.ask, "POST", "/api/tasks/cancel", json={"ids": [held]}) for _ in range(60)]
        until(lambda: api.rows.one(WAITING) >= OF_ONE_THERE, "handlers to wait for the row")
        began = time.monotonic()
        api.get("/api/roles", scope="read")
        api.get("/api/tasks", scope="admin")
        assert time.monotonic() - began < PATIENCE, "a handler was free"
        connection.rollback()
        assert {answer.result().status_code for answer in asked} <= {200, 409, 503}


def test_a_change_of_a_schedule_waits_briefly_for_somebodys_row(api: Api) -> None:
    api.rows(SUBREDDIT)
    job = api.post(JOBS, {"name": "held", "cron_expression": "@yearly", "subreddit_id": 1})["id"]
    calls: list[Call] = [
        ("PUT", f"{JOBS}/{job}", {"priority": 9}), ("POST", f"{JOBS}/{job}/toggle", {"enabled": False}),
        ("DELETE", f"{JOBS}/{job}", {}),
    ]  # fmt: skip
    with open_transaction(api) as connection:
        connection.exec_driver_sql(f"SELECT FROM celeriac.scheduled_jobs WHERE id = {job} FOR UPDATE")
        told_to_wait_at_once(api, *calls)
    assert [action for _, action, *_ in audited(api, "schedule", job)] == ["create"]
    for method, path, body in calls:
        assert api.ask(method, path, json=body).is_success, path


def test_a_new_schedule_waits_briefly_for_somebodys_of_its_name(api: Api) -> None:
    api.rows(SUBREDDIT)
    body = {"name": "held name", "cron_expression": "@yearly", "subreddit_id": 1}
    with open_transaction(api) as connection:
        connection.exec_driver_sql(
            "INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES ('held name', 'x', '@daily')"
        )
        told_to_wait(api, "POST", JOBS, body)
    made = api.post(JOBS, body)
    assert made["name"] == "held name"
    api.delete(f"{JOBS}/{made['id']}")


def paused(api: Api) -> list[str]:
    with api.database.engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT account FROM celeriac.account_policies WHERE paused").scalars())
