"""The system at a glance, over HTTP."""

from __future__ import annotations

from celeriac.doctor.examine import CHECKS
from tests.api.server import Api
from tests.api.works import task


def test_the_depth_of_each_role(api: Api) -> None:
    task(api, role="deep")
    task(api, "running", role="deep")
    (deep,) = [role for role in api.get("/api/roles")["roles"] if role["role"] == "deep"]
    assert (deep["pending"], deep["running"]) == ({"n": 1, "exact": True}, 1)
    assert api.get("/api/roles/deep")["pending"] == deep["pending"]
    api.refused(404, "GET", "/api/roles/no_such_role")


def test_what_the_server_declares_is_overwritten_by_whoever_serves_the_role(api: Api) -> None:
    """Its declarations may be stubs."""
    assert set(api.rows("SELECT release FROM roles WHERE role LIKE '%product_resync%'")) == {(-1,)}


def test_what_the_batcher_decided_and_why(api: Api) -> None:
    api.rows("""
        INSERT INTO celeriac.passes (role, by, free, claimants, given, why_nothing)
        VALUES ('seen', 'beat', 2, '[["a", 3]]', '{"a": 2}', NULL), ('seen', 'beat', 0, '[]', '{}', 'no room')""")
    last, first = api.get("/api/roles/seen/passes")["passes"]
    assert (last["why_nothing"], first["given"]) == ("no room", {"a": 2})
    assert api.get(f"/api/roles/seen/passes?after={last['id']}")["passes"] == [first]


def test_the_beats_that_tick(api: Api) -> None:
    api.rows("INSERT INTO beats (beat_id, hostname, pid, late_by) VALUES ('beat@node:7', 'node', 7, 0.5)")
    (beat,) = [one for one in api.get("/api/beats")["beats"] if one["beat_id"] == "beat@node:7"]
    assert (beat["hostname"], beat["pid"], beat["late_by"]) == ("node", 7, 0.5)


def test_the_doctor_tells_what_is_wrong_with_its_cure(api: Api) -> None:
    task(api, role="undone")
    told = api.get("/api/doctor")
    (undone,) = [one for one in told["findings"] if one["check"] == "roles" and "undone" in one["says"]]
    assert (told["ok"], undone["ok"], undone["about"]) == (False, False, "tasks are not processed")
    assert "worker -Q undone" in undone["cure"]
    assert {one["check"] for one in told["findings"]} == {check.name for check in CHECKS}


def test_the_state_a_review_left_of_a_role_s_queue(api: Api) -> None:
    api.rows("INSERT INTO celeriac.queue_states (role, reviewed_by, found) VALUES ('seen', 'beat', '{\"due\": 2}')")
    told = api.get("/api/reviews/seen")
    assert (told["state"], told["reviewed_by"], told["found"]) == ("reviewed", "beat", {"due": 2})
    assert told in api.get("/api/reviews")["reviews"]
    api.refused(404, "GET", "/api/reviews/no_such_role")


def test_policies_of_accounts(api: Api) -> None:
    api.put("/api/accounts/policy-a", {"weight": 2, "create": True})
    api.put("/api/accounts/policy-b", {"cap": 1, "create": True})
    names = [account["account"] for account in api.get("/api/accounts?after=policy-a&limit=1")["accounts"]]
    assert names == ["policy-b"]
    assert api.get("/api/accounts/policy-a")["weight"] == 2
    assert "nothing is set" in api.refused(404, "GET", "/api/accounts/nobody")["detail"]


def test_the_audit_trail_says_who_did_what(api: Api) -> None:
    waiting = task(api)
    api.post("/api/tasks/cancel", {"ids": [waiting], "why": "sold"}, scope="operate")
    (entry,) = api.get(f"/api/audit?kind=task&target={waiting}")["audit"]
    assert (entry["by"], entry["action"], entry["why"]) == (f"operate {api.url}", "cancel", "sold")
    assert api.get("/api/audit?limit=1")["audit"] == [entry]
    assert entry["via"] == "API"
    for alone in (f"by=operate {api.url}", "action=cancel", "kind=task", "via=API", "newer_than=600"):
        assert entry in api.get(f"/api/audit?{alone}&limit=1000")["audit"]
    for other in ("by=nobody", "action=retry", "kind=role", "via=SQL", "newer_than=0"):
        assert entry not in api.get(f"/api/audit?{other}&target={waiting}")["audit"]


def test_a_workers_hour_is_told_minute_by_minute(api: Api) -> None:
    resources = {"memory_percent": 87.3, "is_backing_off": True, "backoff_reason": "Memory at 87.3 %"}
    api.post("/api/workers/heartbeat", {"worker_id": "hourly/1", "resources": resources})
    (found, *_) = api.get("/api/workers/hourly/1/hour")["minutes"]
    assert (found["memory_percent"], found["cpu_percent"], found["backoff_reason"]) == (87.3, None, "Memory at 87.3 %")
    assert api.get("/api/workers/nobody/hour")["minutes"] == []


def test_workers_are_listed_with_what_they_run(api: Api) -> None:
    said = {"worker_id": "listed:1", "hostname": "node", "queues": ["crawl"], "max_concurrent_tasks": 3}
    api.post("/api/workers/heartbeat", said)
    running = task(api, "running")
    api.rows("UPDATE worker_tasks SET worker_id = 'listed:1' WHERE id = :i", i=running)
    (listed,) = [w for w in api.get("/api/workers")["workers"] if w["worker_id"] == "listed:1"]
    assert (listed["task_ids"], listed["concurrency"]) == ([running], 3)
    assert listed["done_last_hour"] == {"n": 0, "exact": True}
    document = api.get("/api/workers/listed:1/heartbeat")
    assert (document["current_task_ids"], document["max_concurrent_tasks"]) == ([running], 3)
    api.refused(404, "GET", "/api/workers/nobody/heartbeat")
