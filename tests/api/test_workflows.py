"""Workflows over HTTP: seen as a whole, part by part, and cancelled."""

from __future__ import annotations

import itertools
import json
from typing import Any
from uuid import uuid4

from tests.api.server import Api
from tests.api.works import audited, row, task

_number = itertools.count()


def chord(api: Api) -> tuple[str, str, dict[str, int]]:
    """Its id, its barrier, and the ids of its parts: one done, one that runs, one that waits, and the body."""
    label, barrier = f"workflow-{next(_number)}", str(uuid4())
    member = {"workflow": label, "barrier": barrier}
    parts = {
        status: task(api, status, **member, place=n) for n, status in enumerate(("completed", "running", "pending"))
    }
    headers = json.dumps({"canvas": {"awaits": barrier}})
    made = """INSERT INTO worker_tasks (task_id, role, workflow, headers, waits_for)
        VALUES (:label || ' body', 'instasite_ready_mail', :label, CAST(:headers AS jsonb), 'members') RETURNING id"""
    parts["body"] = int(str(api.rows.one(made, label=label, headers=headers)))
    return label, barrier, parts


def test_a_workflow_is_shown_by_any_of_its_ids(api: Api) -> None:
    label, barrier, parts = chord(api)
    found = api.get(f"/api/workflows/{label}")
    assert (found["state"], found["done"], found["total"], found["completed_at"]) == ("running", 1, 4, None)
    assert found["nodes"] == [
        {
            "role": "instasite_build", "barrier": barrier, "body": parts["body"],
            "counts": {"completed": 1, "running": 1, "pending": 1},
        },
        {"role": "instasite_ready_mail", "barrier": None, "body": None, "counts": {"pending": 1}},
    ]  # fmt: skip
    assert found["edges"] == [{"source": 0, "target": 1, "kind": "members"}]
    for given in (parts["body"], parts["completed"], f"{label} body"):
        assert api.get(f"/api/workflows/{given}") == found
    assert "belongs to no workflow" in api.refused(404, "GET", f"/api/workflows/{task(api)}")["detail"]
    assert "there is no workflow" in api.refused(404, "GET", "/api/workflows/nonesuch")["detail"]


def test_those_under_way_are_listed(api: Api) -> None:
    """With the role of the first part that is unfinished; not those that are over."""
    over, label = f"workflow-{next(_number)}", f"workflow-{next(_number)}"
    task(api, "completed", workflow=over)
    task(api, "completed", workflow=label)
    task(api, "pending", workflow=label, role="instasite_ready_mail")
    task(api, "running", workflow=label)
    found = api.get("/api/workflows", params={"limit": 1000})["workflows"]
    (mine,) = [one for one in found if one["id"] == label]
    assert (mine["role"], mine["finished"], mine["unfinished"]) == ("instasite_ready_mail", 1, 2)
    assert over not in [one["id"] for one in found]


def test_its_parts_are_listed(api: Api) -> None:
    label, barrier, parts = chord(api)

    def listed(**query: Any) -> dict[str, Any]:
        found: dict[str, Any] = api.get(f"/api/workflows/{label}/tasks", params=query)
        return found

    everything = listed()["tasks"]
    assert [part["id"] for part in everything] == sorted(parts.values(), reverse=True)
    assert (everything[0]["waits_for"], everything[0]["awaits"]) == ("members", barrier)
    first = listed(limit=3)
    assert [part["id"] for part in listed(after=first["next"])["tasks"]] == [parts["completed"]]
    members = listed(role="instasite_build", barrier=barrier)["tasks"]
    assert {(part["body"], part["barrier"]) for part in members} == {(parts["body"], barrier)}
    assert [part["id"] for part in listed(status="running")["tasks"]] == [parts["running"]]
    assert [part["id"] for part in listed(status="crawling")["tasks"]] == [parts["running"]]
    assert listed(status="stale")["tasks"] == []
    for wrong in ("after=x", "status=done", "barrier=x", "colour=red", "limit=0"):
        api.refused(422, "GET", f"/api/workflows/{label}/tasks?{wrong}")
    api.refused(404, "GET", "/api/workflows/nonesuch/tasks")


def test_it_is_cancelled_whole_once(api: Api) -> None:
    label, _, parts = chord(api)
    answer = api.post(f"/api/workflows/{parts['pending']}/cancel", {"why": "sold"})
    assert answer == {"cancelled": 2, "asked": 1}
    assert row(api, parts["body"], "status, error_message") == ("cancelled", "sold")
    assert row(api, parts["running"], "status, cancel_requested_at IS NOT NULL") == ("running", True)
    assert api.get(f"/api/workflows/{label}/tasks?status=running")["tasks"][0]["cancel_requested_at"]
    assert row(api, parts["completed"], "status") == ("completed",)
    cancelled = [entry for entry in audited(api, "tasks", "workflow") if entry[3]["filter"] == {"workflow": label}]
    assert [(entry[1], entry[4]) for entry in cancelled] == [("cancel", "sold")]
    assert api.post(f"/api/workflows/{label}/cancel") == {"cancelled": 0, "asked": 0}
    api.refused(404, "POST", "/api/workflows/nonesuch/cancel")
