"""Enqueue over HTTP: the rows are the same as `.delay()` makes."""

from __future__ import annotations

import itertools
import json
from uuid import UUID, uuid5

import httpx
import pytest
from fastapi import Response

from celeriac import Celeriac
from celeriac.api.enqueue import TaskToBe, create_task
from celeriac.operate import tokens
from celeriac.operate.tokens import Bearer
from tests.api.server import Api, problem
from tests.api.works import audited

#: Dispensaries that no other test has.
_trace = itertools.count(8_800_000)


def build(site: int, account: int = 1, **more: object) -> dict[str, object]:
    return {"role": "instasite_build", "kwargs": {"instasite_id": site, "account_id": account}, **more}


def test_a_task_is_a_row_with_its_roles_keys(api: Api) -> None:
    made = api.post("/api/tasks", build(101, account=3, priority=7), scope="enqueue")
    assert made["is_new"]
    assert api.rows(
        "SELECT id, role, account, lock_key, unique_key, priority, kwargs, status FROM worker_tasks WHERE task_id = :t",
        t=made["task_id"],
    ) == [
        (
            made["id"],
            "instasite_build",
            "3",
            "instasite_id:101",
            "101",
            7,
            {"instasite_id": 101, "account_id": 3},
            "pending",
        )
    ]


def test_further_fields_are_arguments(api: Api) -> None:
    made = api.post("/api/tasks", {"role": "instasite_build", "instasite_id": 102, "account_id": 1})
    assert api.rows.one("SELECT kwargs FROM worker_tasks WHERE id = :i", i=made["id"]) == {
        "instasite_id": 102,
        "account_id": 1,
    }


def test_who_asked_stands_in_the_row(api: Api) -> None:
    made = api.ask_with(api.token("shop", "enqueue"), "POST", "/api/tasks", json=build(103)).json()
    assert api.rows.one("SELECT enqueued_by FROM worker_tasks WHERE id = :i", i=made["id"]) == "shop"


def test_a_unique_task_is_found_again(api: Api) -> None:
    first = api.ask("POST", "/api/tasks", json=build(104))
    second = api.ask("POST", "/api/tasks", json=build(104))
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json() | {"is_new": False}


def test_who_meets_a_task_that_is_planned_for_later_is_told_for_when(api: Api) -> None:
    made = api.post("/api/tasks", build(130, scheduled_for="2100-01-01T00:00:00"))
    again = api.post("/api/tasks", build(130))
    assert (made["is_new"], made["due_at"]) == (True, None)
    assert (again["id"], again["is_new"], again["waits_for"]) == (made["id"], False, "time")
    assert again["due_at"] == "2100-01-01T00:00:00Z"
    api.post("/api/tasks", build(131))
    assert api.post("/api/tasks", build(131))["due_at"] is None, "it can start"


def test_a_later_task_waits_for_its_time(api: Api) -> None:
    made = api.post("/api/tasks", build(105, scheduled_for="2100-01-01T00:00:00"))
    due = "SELECT waits_for, scheduled_for = '2100-01-01T00:00:00Z' FROM worker_tasks WHERE id = :i"
    assert api.rows(due, i=made["id"]) == [("time", True)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"role": "no_such_role"}, "role"),
        ({"role": ""}, "role"),
        ({"kwargs": {"instasite_id": 1}}, "kwargs"),
        ({"priorty": 3}, "kwargs"),
        ({"priority": "high"}, "priority"),
        ({"priority": False}, "priority"),
        ({"max_retries": True}, "max_retries"),
        ({"timeout": "60"}, "timeout"),
        ({"priority": 10**9}, "priority"),
        ({"timeout": 0}, "timeout"),
        ({"role": "crawl_subreddit", "kwargs": {"subreddit_id": 1}, "priority": 101}, "priority"),
        ({"account": "a\u0000b"}, "account"),
        ({"delay": -1}, "delay"),
        ({"scheduled_for": "tomorrow"}, "scheduled_for"),
        ({"scheduled_for": "9999-12-31T23:00:00-05:00"}, "scheduled_for"),
        ({"expires_at": "0001-01-01T00:30:00+05:00"}, "expires_at"),
        ({"kwargs": {"instasite_id": "a\u0000b", "account_id": 1}}, "kwargs"),
        ({"kwargs": {"instasite_id": "\ud800", "account_id": 1}}, "kwargs"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_its_name_and_leaves_nothing(api: Api, change: dict, field: str) -> None:
    before = api.rows("SELECT count(*) FROM worker_tasks")
    content = json.dumps(build(106) | change)
    document = api.refused(422, "POST", "/api/tasks", content=content, headers={"Content-Type": "application/json"})
    assert [error["field"] for error in document["errors"]] == [field]
    assert api.rows("SELECT count(*) FROM worker_tasks") == before


def test_many_are_accepted_together(api: Api) -> None:
    made = api.post("/api/tasks/bulk", {"tasks": [build(n) for n in range(110, 113)]})["tasks"]
    assert [task["is_new"] for task in made] == [True] * 3
    ids = [task["id"] for task in made]
    assert api.rows.one("SELECT count(*) FROM worker_tasks WHERE id = ANY(:ids)", ids=ids) == 3


def test_a_task_sent_twice_at_once_is_new_and_audited_once(api: Api) -> None:
    twice = [build(113, task_id="sent twice"), build(113, task_id="sent twice")]
    first, second = api.post("/api/tasks/bulk", {"tasks": twice})["tasks"]
    assert (first["is_new"], second["is_new"], second["id"]) == (True, False, first["id"])
    assert [entry[1] for entry in audited(api, "task", first["id"])] == ["enqueue"]


@pytest.mark.parametrize(
    "other", [build(118), build(117, account=2), {"role": "crawl_subreddit", "kwargs": {"subreddit_id": 1}}]
)
def test_an_id_is_no_other_tasks(api: Api, other: dict) -> None:
    taken = {"task_id": f"taken {other}"[:60]}
    first = api.post("/api/tasks", build(117, unique_key=str(taken)) | taken)
    assert not api.post("/api/tasks", build(117, unique_key=str(taken)) | taken)["is_new"], "the same is found"
    before = api.rows("SELECT count(*) FROM worker_tasks")
    document = api.refused(409, "POST", "/api/tasks", json=other | taken)
    assert f"task {first['id']} has this id" in document["detail"]
    api.refused(409, "POST", "/api/tasks/bulk", json={"tasks": [build(119), other | taken]})
    assert api.rows("SELECT count(*) FROM worker_tasks") == before


def test_ids_of_schedules_are_nobody_elses(api: Api) -> None:
    body = build(120, task_id="daily@2031-01-01T00:00:00Z", delay=1e9)
    document = api.refused(422, "POST", "/api/tasks", json=body)
    assert [error["field"] for error in document["errors"]] == ["task_id"]
    api.post("/api/tasks", body | {"task_id": "me@example.org"})


def test_a_request_sent_again_with_its_key_finds_its_rows(api: Api) -> None:
    def send(path: str, body: dict, scope: str = "enqueue") -> httpx.Response:
        return api.ask("POST", path, json=body, scope=scope, headers={"Idempotency-Key": "once"})

    one = build(121, unique_key="key 121")
    first, again = (send("/api/tasks", one) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()["id"]) == (201, 200, first.json()["id"])
    assert problem(send("/api/tasks", build(122)), 409), "another request with the same key"
    many = {"tasks": [build(123), build(124)]}
    rows = [[task["id"] for task in send("/api/tasks/bulk", many).json()["tasks"]] for _ in range(2)]
    assert rows[0] == rows[1]
    assert send("/api/tasks", build(125), "admin").status_code == 201, "another token's key"


def test_nobody_takes_the_id_of_anothers_idempotency_key_first(api: Api) -> None:
    """It is made of the token, of which whoever knows all that is shown knows nothing."""
    token = api.token("key 126", "enqueue")
    shown = api.rows("SELECT id, name FROM celeriac.api_tokens WHERE name = 'key 126'")[0]
    with api.database.statement() as connection:
        bearer = tokens.verify(connection, token)
    assert bearer is not None
    headers = {"Idempotency-Key": "once"}
    mine = api.ask_with(token, "POST", "/api/tasks", json=build(126), headers=headers).json()["task_id"]
    space = UUID("6f6f2b0e-5a0c-4c63-9c3a-3f8f4a3b7a11")
    assert mine not in {str(uuid5(space, f"{one}  once")) for one in shown}
    assert mine == bearer.id_of(" once")


def test_one_bad_task_of_many_leaves_none(api: Api) -> None:
    bad = build(115) | {"kwargs": {}}
    document = api.refused(422, "POST", "/api/tasks/bulk", json={"tasks": [build(114), bad]})
    assert [error["field"] for error in document["errors"]] == ["tasks.1.kwargs"]
    assert api.rows("SELECT FROM worker_tasks WHERE unique_key = '114'") == []


def test_a_task_of_a_lock_key_nobody_has_is_its_head_as_soon_as_it_is_accepted(api: Api) -> None:
    first, second = (api.post("/api/tasks", build(site, lock_key="its own")) for site in (9110, 9111))
    assert [task["waits_for"] for task in (first, second)] == [None, "lock"]
    shown = "SELECT lock_key, waits_for FROM worker_tasks WHERE id = :id"
    assert [api.rows(shown, id=task["id"])[0] for task in (first, second)] == [("its own", None), ("its own", "lock")]


def test_only_what_waits_for_a_lock_is_looked_at_again(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(role="work", shared=False)
    def work() -> None: ...

    read = []
    monkeypatch.setattr(app.database, "reading", lambda reading=app.database.reading: read.append(1) or reading())
    for options, looks in (({}, 0), ({"unique_key": "k"}, 0), ({"delay": 60}, 0), ({"lock_key": "k"}, 1)):
        read.clear()
        create_task(TaskToBe(role="work", **options), app, Bearer("1", "shop", frozenset()), Response(), {})
        assert len(read) == looks, options


def test_a_task_belongs_to_the_trace_of_the_request(api: Api) -> None:
    """W3C Trace Context; what is malformed is passed over."""
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for given, kept in (
        ({"traceparent": parent, "tracestate": "a=1"}, {"traceparent": parent, "tracestate": "a=1"}),
        ({"traceparent": parent.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)}, None),
        ({"traceparent": "00-x", "tracestate": "a=1"}, None),
        ({"tracestate": "a=1"}, None),
    ):
        made = api.post("/api/tasks", {"role": "product_resync", "dispensary_id": next(_trace)}, headers=given)
        told = api.rows.one("SELECT headers -> 'headers' FROM worker_tasks WHERE id = :i", i=made["id"])
        assert told == kept, given
    body = {"tasks": [{"role": "product_resync", "dispensary_id": next(_trace)} for _ in range(2)]}
    rows = [task["id"] for task in api.post("/api/tasks/bulk", body, headers={"traceparent": parent})["tasks"]]
    found = api.rows(
        "SELECT DISTINCT headers #>> '{headers,traceparent}' FROM worker_tasks WHERE id = ANY (:i)", i=rows
    )
    assert found == [(parent,)]
