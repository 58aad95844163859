"""Steering over HTTP: tasks, roles, accounts, workers; each change with its audit row."""

from __future__ import annotations

import json

from tests.api.server import Api
from tests.api.works import audited, row, task


def test_a_waiting_task_is_cancelled_at_once(api: Api) -> None:
    waiting = task(api)
    assert api.post("/api/tasks/cancel", {"ids": [waiting], "why": "sold"})["changed"] == [waiting]
    assert row(api, waiting, "status, error_message") == ("cancelled", "sold")
    assert [entry[1] for entry in audited(api, "task", waiting)] == ["cancel"]


def test_a_task_is_steered_by_either_id(api: Api) -> None:
    mine = task(api, task_id="steered by its own id")
    assert api.post("/api/tasks/prioritise", {"ids": ["steered by its own id"], "priority": 3})["changed"] == [mine]
    api.post("/api/admin/jobs/steered by its own id/boost", {"boost": 4})
    api.post("/api/tasks/cancel", {"ids": ["steered by its own id"]})
    assert row(api, mine, "status, priority") == ("cancelled", 7)


def test_a_running_tasks_worker_is_asked_to_stop_it(api: Api) -> None:
    running = task(api, "running")
    assert api.post("/api/tasks/cancel", {"ids": [running]})["changed"] == [running]
    assert row(api, running, "status, cancel_requested_at IS NOT NULL") == ("running", True)


def test_a_task_is_retried_or_gets_another_priority(api: Api) -> None:
    failed = task(api, "failed")
    api.post("/api/tasks/retry", {"ids": [failed]})
    api.post("/api/tasks/prioritise", {"ids": [failed], "priority": 9})
    assert row(api, failed, "status, priority") == ("pending", 9)
    assert [entry[1] for entry in audited(api, "task", failed)] == ["retry", "priority"]


def test_a_retry_goes_on_from_where_the_task_stopped(api: Api) -> None:
    failed = task(api, "failed")
    assert api.post("/api/tasks/retry", {"ids": [failed], "goes_on": True})["changed"] == [failed]
    assert row(api, failed, "status, retry_count") == ("pending", 3)


def test_a_task_that_waits_has_other_arguments(api: Api) -> None:
    waits = task(api, "pending", kwargs='{"instasite_id": 1, "account_id": 2}')
    path = f"/api/tasks/{waits}/arguments"
    after = api.put(path, {"arguments": {"instasite_id": 1}})["after"]
    assert after == {"arguments": []}
    api.refused(403, "PUT", path, json={"arguments": {}}, scope="operate")
    assert "account" in api.refused(422, "PUT", path, json={"arguments": {"account_id": 3}})["detail"]
    api.refused(404, "PUT", "/api/tasks/nobody/arguments", json={"arguments": {}})


def test_what_waits_for_its_time_is_due_now(api: Api) -> None:
    kwargs = {"instasite_id": 6_000, "account_id": 1}
    planned = {"role": "instasite_build", "kwargs": kwargs, "task_id": "planned", "delay": 3_600}
    later = api.post("/api/tasks", planned)["id"]
    assert api.post("/api/tasks/planned/hasten", {"why": "asked"})["target"] == str(later)
    assert row(api, later, "scheduled_for <= now()") == (True,)
    assert [(entry[1], entry[4]) for entry in audited(api, "task", later)] == [("enqueue", None), ("hasten", "asked")]
    api.refused(409, "POST", f"/api/tasks/{task(api, 'completed')}/hasten")


def test_many_are_cancelled_or_retried_by_their_ids(api: Api) -> None:
    waiting, over = task(api), task(api, "completed")
    answer = api.post("/api/tasks/cancel", {"ids": [waiting, over]})
    assert (answer["changed"], [r["id"] for r in answer["refused"]]) == ([waiting], [over])
    assert api.post("/api/tasks/retry", {"ids": [waiting]})["changed"] == [waiting]
    assert row(api, waiting, "status") == ("pending",)


def test_many_are_named_by_either_id(api: Api) -> None:
    by_row, by_task_id, by_text = task(api), task(api, task_id="named by hand"), task(api)
    digits = task(api, task_id=str(by_text + 500_000))
    named = [by_row, "named by hand", by_task_id, str(by_text), "nobody's", str(by_text + 500_000)]
    answer = api.post("/api/tasks/cancel", {"ids": named})
    assert answer["changed"] == sorted([by_row, by_task_id, by_text, digits]), "a number is a row's, if there is one"
    assert answer["missing"] == ["nobody's"]
    task(api, task_id=str(by_text))
    document = api.refused(422, "POST", "/api/tasks/cancel", json={"ids": [by_row, str(by_text)]})
    assert f"write id={by_text} or task_id={by_text}" in document["detail"]
    document = api.refused(422, "POST", "/api/tasks/cancel", json={"ids": [by_row, False]})
    assert [error["field"] for error in document["errors"]] == ["ids.1"]


def test_a_role_is_paused_and_resumed(api: Api) -> None:
    paused = "SELECT paused FROM celeriac.roles WHERE role = 'instasite_ready_mail'"
    assert api.post("/api/roles/instasite_ready_mail/pause", {"why": "mail is down"})["after"] == {"paused": True}
    assert api.rows.one(paused) is True
    after = api.post("/api/roles/instasite_ready_mail/pause", {"why": "mail is down", "seconds": 600})["after"]
    assert after["until"] == api.get("/api/roles/instasite_ready_mail")["paused_until"].replace("Z", "+00:00")
    api.refused(422, "POST", "/api/roles/instasite_ready_mail/pause", json={"seconds": 0})
    assert api.post("/api/roles/instasite_ready_mail/resume")["after"] == {"paused": False}
    assert api.rows.one(paused) is False
    assert [(e[1], e[4]) for e in audited(api, "role", "instasite_ready_mail")] == [
        ("pause", "mail is down"),
        ("pause", "mail is down"),
        ("resume", None),
    ]
    api.refused(404, "POST", "/api/roles/no_such_role/pause")


def test_a_roles_limits_are_as_declared_again(api: Api) -> None:
    path = "/api/roles/instasite_build/limits"
    limits = (
        "SELECT rate_limit, is_told, timeout, hard_timeout FROM celeriac.role_limits WHERE role = 'instasite_build'"
    )
    declared = api.rows.one("SELECT definition ->> 'timeout' FROM celeriac.roles WHERE role = 'instasite_build'")
    api.put(path, {"rate_limit": "3/m", "timeout": 7})
    assert api.rows(limits) == [("3/m", True, 7.0, None)]
    told = api.post(f"{path}/reset", {"why": "it was slow"})
    assert told["after"]["rate_limit"] is None
    assert told["after"]["timeout"] == (None if declared is None else float(str(declared)))
    assert api.rows(limits) == [(None, False, None, None)]
    api.refused(404, "POST", "/api/roles/no_such_role/limits/reset", json={})


def test_a_roles_limits_are_set_and_lifted(api: Api) -> None:
    path = "/api/roles/instasite_ready_mail/limits"
    assert api.put(path, {"rate_limit": "10/m", "timeout": 5, "why": "mail is slow"})["after"] == {
        "rate_limit": "10/m", "timeout": 5, "hard_timeout": None
    }  # fmt: skip
    assert api.put(path, {"rate_limit": None})["after"]["rate_limit"] is None
    assert api.rows("SELECT rate_limit, timeout FROM celeriac.role_limits WHERE role = 'instasite_ready_mail'") == [
        (None, 5)
    ]
    api.refused(404, "PUT", "/api/roles/no_such_role/limits", json={"rate_limit": 1})
    assert "10/m" in api.refused(422, "PUT", path, json={"rate_limit": "often"})["detail"]


def test_an_account_is_paused_and_resumed(api: Api) -> None:
    paused = "SELECT paused FROM celeriac.account_policies WHERE account = 'anna/berlin'"
    api.post("/api/accounts/anna%2Fberlin/pause", {"why": "unpaid", "create": True})
    assert api.rows.one(paused) is True
    api.post("/api/accounts/anna/berlin/resume")
    assert api.rows.one(paused) is False
    assert [(e[3]["paused"], e[4]) for e in audited(api, "account", "anna/berlin")] == [(True, "unpaid"), (False, None)]


def test_an_account_has_a_weight_and_a_cap(api: Api) -> None:
    api.put("/api/accounts/bert", {"weight": 2.5, "cap": 3, "create": True})
    after = api.put("/api/accounts/bert", {"cap": None, "why": "no cap any more"})["after"]
    assert after == {"weight": 2.5, "cap": None, "paused": False}
    assert api.rows("SELECT weight, cap FROM celeriac.account_policies WHERE account = 'bert'") == [(2.5, None)]
    assert [entry[3]["cap"] for entry in audited(api, "account", "bert")] == [3, None]
    document = api.refused(422, "PUT", "/api/accounts/bert", json={"weight": 0})
    assert [e["field"] for e in document["errors"]] == ["weight"]


def test_an_account_that_nobody_knows_is_a_slip_unless_said_otherwise(api: Api) -> None:
    for method, path in (("POST", "/typo/pause"), ("POST", "/typo/resume"), ("PUT", "/typo")):
        api.refused(404, method, f"/api/accounts{path}", json={"why": "unpaid"})
    assert api.ask("PUT", "/api/accounts/0/pause", json={"create": True}).headers["allow"] == "POST"
    assert api.rows("SELECT FROM celeriac.account_policies WHERE account IN ('typo', '0', '0/pause')") == []
    for status in ("pending", "running", "completed"):
        task(api, status, account=f"has {status}")
        api.post(f"/api/accounts/has {status}/pause")


def test_a_worker_reports_and_is_decommissioned(api: Api) -> None:
    said = {"worker_id": "node:7", "hostname": "node", "queues": ["crawl"], "resources": {"memory_mb": 256}}
    assert api.post("/api/workers/heartbeat", said) == {"status": "active"}
    assert api.rows("SELECT hostname, queues, resources FROM celeriac.workers WHERE worker_id = 'node:7'") == [
        ("node", ["crawl"], {"memory_mb": 256})
    ]
    assert api.post("/api/workers/node:7/decommission", {"why": "old"})["after"] == {"status": "draining"}
    assert api.post("/api/workers/heartbeat", said) == {"status": "draining"}, "it hears of it"
    assert api.post("/api/workers/node:7/resume")["after"] == {"status": "active"}
    assert api.post("/api/workers/heartbeat", said | {"version": "9"}) == {"status": "active"}, "and that it goes on"
    assert [w["version"] for w in api.get("/api/workers?limit=1000")["workers"] if w["worker_id"] == "node:7"] == ["9"]
    api.refused(409, "POST", "/api/workers/node:7/resume")
    api.post("/api/workers/node:7/decommission")
    changes = [entry[1] for entry in audited(api, "worker", "node:7")]
    assert changes == ["report", "decommission", "resume", "decommission"]
    api.post("/api/workers/heartbeat", said | {"status": "stopped"})
    api.refused(409, "POST", "/api/workers/node:7/decommission")
    api.refused(404, "POST", "/api/workers/nobody/decommission")


#: As the document of the worker tasks has it ("Heartbeat Data").
HEARTBEAT = """
{
  "worker_id": "worker-abc123",
  "current_task_id": 456,
  "current_task_ids": [456, 457, 458],
  "active_task_count": 3,
  "max_concurrent_tasks": 3,
  "status": "active",
  "resources": {
    "memory_mb": 256,
    "memory_total_mb": 512,
    "memory_rss_mb": 320,
    "memory_percent": 50,
    "cpu_user_ms": 12500,
    "cpu_system_ms": 3200,
    "cpu_percent": 45,
    "is_backing_off": false,
    "backoff_reason": null
  }
}
"""


def test_a_heartbeat_is_taken_as_the_document_has_it(api: Api) -> None:
    headers = {"Content-Type": "application/json"}
    assert api.ask("POST", "/api/workers/heartbeat", content=HEARTBEAT, headers=headers).json() == {"status": "active"}
    said, told = json.loads(HEARTBEAT), api.get("/api/workers/worker-abc123/heartbeat")
    assert told == said | {"current_task_id": None, "current_task_ids": [], "active_task_count": 0}, (
        "what it runs is what SQL knows of it, and no worker's word"
    )


def test_who_enqueued_is_audited(api: Api) -> None:
    body = {"role": "instasite_build", "kwargs": {"instasite_id": 5_000, "account_id": 1}}
    made = api.post("/api/tasks", body, scope="enqueue")
    ((by, action, before, after, _),) = audited(api, "task", made["id"])
    assert (by, action, before, after["role"]) == (f"enqueue {api.url}", "enqueue", None, "instasite_build")
    api.post("/api/tasks", body, scope="enqueue")
    assert len(audited(api, "task", made["id"])) == 1, "the second changed nothing"


def test_a_workers_report_may_not_be_large_or_deep(api: Api) -> None:
    deep: object = []
    for _ in range(150):
        deep = [deep]
    for resources in ({"deep": deep}, {"large": "x" * 10_000}, {"text": "\u0000"}):
        document = api.refused(422, "POST", "/api/workers/heartbeat", json={"worker_id": "big", "resources": resources})
        assert [error["field"] for error in document["errors"]] == ["resources"]
    assert api.rows("SELECT FROM celeriac.workers WHERE worker_id = 'big'") == []


def test_a_live_workers_row_is_its_reporters_own(api: Api) -> None:
    api.rows("INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency) VALUES ('celery@n', 'n', 7, 1)")
    first, other = api.token("first", "operate"), api.token("other", "operate")
    said = {"worker_id": "mine", "resources": {"memory_mb": 1}}

    def report(token: str, worker: str = "mine") -> int:
        return api.ask_with(token, "POST", "/api/workers/heartbeat", json=said | {"worker_id": worker}).status_code

    assert [report(first), report(first), report(other), report(first, "celery@n")] == [200, 200, 409, 409]
    assert [(by, after["reported_by"]) for by, _, _, after, _ in audited(api, "worker", "mine")] == [("first", "first")]
    api.rows("UPDATE celeriac.workers SET last_heartbeat_at = now() - interval '1 hour'")
    assert report(other) == 200
    assert audited(api, "worker", "mine")[-1][2]["reported_by"] == "first"
