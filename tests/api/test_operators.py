"""What operators ask first, over HTTP."""

from __future__ import annotations

from typing import Any

from tests.api.server import Api
from tests.api.works import audited, task


def test_failures_that_are_the_same_are_told_once(api: Api) -> None:
    failed = [task(api, "failed", role="grouped") for _ in range(3)]
    told = api.get("/api/failures?role=grouped")
    (group,) = told["groups"]
    assert (group["pattern"], group["count"], group["tasks"]) == ("broken", 3, failed[::-1])
    assert (told["looked_at"], told["reached_end"]) == (3, True)
    assert api.get("/api/failures?role=grouped&since=0")["groups"] == []
    api.refused(422, "GET", "/api/failures?since=-1")


def test_failures_are_marked_and_one_that_was_resolved_opens_by_itself(api: Api) -> None:
    task(api, "failed", role="marked")

    def seen(**asked: str) -> list[dict[str, Any]]:
        return list(api.get("/api/failures", params={"role": "marked"} | asked)["groups"])

    (group,) = seen()
    assert group["mark"] == {"state": "open", "note": None, "by": None, "at": None, "reopened": False}
    address = f"/api/failures/{group['fingerprint']}"
    marked = api.put(address, {"state": "known", "note": "until Monday"})
    assert marked["before"] == {"state": "open", "note": None}
    assert marked["after"] == {"state": "known", "note": "until Monday"}
    task(api, "failed", role="marked")
    assert [(one["mark"]["state"], one["mark"]["note"]) for one in seen(state="known")] == [("known", "until Monday")]
    assert seen(state="open") == []
    api.put(address, {"state": "resolved"})
    assert [one["mark"]["state"] for one in seen()] == ["resolved"]
    task(api, "failed", role="marked")
    (group,) = seen(state="open")
    assert (group["mark"]["state"], group["mark"]["reopened"], group["count"]) == ("open", True, 3)
    api.put(address, {"state": "open"})
    assert seen()[0]["mark"]["reopened"] is False
    assert [action for _, action, *_ in audited(api, "failure", group["fingerprint"])] == ["mark"] * 3
    api.refused(404, "PUT", "/api/failures/0123456789ab", json={"state": "known"})
    api.refused(422, "PUT", address, json={"state": "gone"})
    api.refused(422, "GET", "/api/failures?state=gone")


def test_tasks_are_found_by_what_they_failed_of_and_by_their_age(api: Api) -> None:
    old, new = (task(api, "failed", role="found") for _ in range(2))
    api.rows("UPDATE celeriac.history SET created_at = now() - interval '1 day' WHERE id = :i", i=old)
    assert [one["id"] for one in api.get("/api/tasks?role=found&error=BROK")["tasks"]] == [new, old]
    assert [one["id"] for one in api.get("/api/tasks?role=found&newer_than=3600")["tasks"]] == [new]
    assert api.get("/api/tasks?role=found&error=whole")["tasks"] == []


def test_what_each_account_holds_beside_its_fair_share(api: Api) -> None:
    task(api, role="shared", account="a")
    task(api, "running", role="shared", account="b")
    found = {share["account"]: share for share in api.get("/api/shares?role=shared")["accounts"]}
    assert (found["a"]["waiting"], found["b"]["held"], found["b"]["held_share"]) == ({"n": 1, "exact": True}, 1, 1.0)
    assert api.get("/api/shares?role=none") == {"accounts": [], "is_all": True, "cursor": None, "next": None}


def test_what_an_account_has_of_each_role_holds_and_has_waited_for_longest(api: Api) -> None:
    waits = task(api, role="shared", account="whole/one")
    runs = task(api, "running", role="shared", account="whole/one")
    task(api, "failed", role="shared", account="whole/one")
    told = api.get("/api/shares/account", params={"account": "whole/one"})
    (role,) = told["roles"]
    assert (role["role"], role["ready"]["n"], role["running"], role["failed"]) == ("shared", 1, 1, 1)
    assert [(one["id"], one["worker_id"]) for one in told["held"]] == [(runs, "w")]
    assert [(one["id"], one["parked"]) for one in told["oldest"]] == [(waits, False)]
    nobody = api.get("/api/shares/account?account=none")
    assert (nobody["roles"], nobody["held"], nobody["oldest"]) == ([], [], [])
    assert (nobody["received"]["slots"], nobody["received"]["fair"], nobody["received"]["is_all"]) == (0, 0.0, True)


def test_what_passes_gave_an_account_within_an_hour_beside_its_fair_share(api: Api) -> None:
    api.rows("""INSERT INTO celeriac.passes (role, by, free, claimants, given)
        VALUES ('shared', 'beat', 12, '[{"account": "quiet", "waiting": 9}, {"account": "loud", "waiting": 9}]',
            '{"quiet": 2, "loud": 10}')""")
    received = api.get("/api/shares/account?account=quiet")["received"]
    assert (received["slots"], received["fair"], received["is_all"]) == (2, 6.0, True)
    assert [(step["slots"], step["fair"]) for step in received["steps"] if step["slots"]] == [(2, 6.0)]


def test_who_holds_a_lock_and_who_waits_behind(api: Api) -> None:
    holder = task(api, "running", role="locked", lock_key="dispensary:17/a")
    behind = task(api, role="locked", lock_key="dispensary:17/a")
    told = api.get("/api/locks/queue", params={"lock_key": "dispensary:17/a"})
    lock = told["lock"]
    assert (lock["task"], lock["status"], lock["waiting"]["n"]) == (holder, "running", 1)
    assert [(one["place"], one["id"]) for one in told["queue"]] == [(1, behind)]
    assert "dispensary:17/a" in {lock["lock_key"] for lock in api.get("/api/locks?limit=1000")["locks"]}


def test_why_a_roles_tasks_wait(api: Api) -> None:
    for _ in range(3):
        task(api, role="waits of")
    task(api, role="waits of", waits_for="lock", lock_key="waits of")
    told = api.get("/api/roles/waits of/waits")
    assert told["role"] == "waits of"
    assert [(one["reason"], one["room"], one["n"]) for one in told["waits"]] == [
        ("role_unknown", "nothing", {"n": 3, "exact": True}), ("lock", "lock", {"n": 1, "exact": True}),
    ]  # fmt: skip
    api.refused(404, "GET", "/api/roles/no_such_role/waits")


def test_which_unique_keys_are_taken(api: Api) -> None:
    taken = {task(api, role="unique of", unique_key=key): key for key in ("b", "a")}
    running = task(api, "running", role="unique of", unique_key="c")
    task(api, "completed", role="unique of", unique_key="d")
    told = api.get("/api/unique-keys?role=unique of")["unique_keys"]
    assert [one["unique_key"] for one in told] == ["a", "b", "c"]
    assert {one["task"]: one["unique_key"] for one in told} == taken | {running: "c"}
    assert [one["status"] for one in told] == ["pending", "pending", "running"]
    first = api.get("/api/unique-keys?role=unique of&limit=1")
    following = api.get("/api/unique-keys", params={"role": "unique of", "after": first["next"]})
    assert [*first["unique_keys"], *following["unique_keys"]] == told
    assert told[0] in api.get("/api/unique-keys?limit=1000")["unique_keys"]
    api.refused(422, "GET", "/api/unique-keys?after=a")


def test_all_tasks_of_a_failure_are_listed(api: Api) -> None:
    made = [task(api, "failed", role="failed of") for _ in range(3)]
    other = task(api, "failed", role="failed of")
    api.rows("UPDATE celeriac.history SET error_message = 'OtherError: it' WHERE id = :id", id=other)
    groups = api.get("/api/failures?role=failed of")["groups"]
    (fingerprint,) = [one["fingerprint"] for one in groups if one["type"] is None]
    path = f"/api/failures/{fingerprint}/tasks?role=failed of"
    assert [one["id"] for one in api.get(path)["tasks"]] == made[::-1]
    first = api.get(f"{path}&limit=2")
    assert [one["id"] for one in first["tasks"]] == made[:0:-1]
    assert [one["id"] for one in api.get(f"{path}&limit=2&after={first['next']}")["tasks"]] == made[:1]
    api.refused(404, "GET", "/api/failures/none/tasks?role=failed of")


def test_shares_of_a_role_tell_the_rounds_waited_and_where_the_next_pass_begins(api: Api) -> None:
    task(api, role="turns of", account="waits")
    task(api, role="turns of", account="other")
    api.rows("INSERT INTO batchers (role, cursor) VALUES ('turns of', 'other')")
    api.rows("INSERT INTO roles (role, definition) VALUES ('turns of', '{}')")
    seen = '[{"account": "other", "waiting": 3}, {"account": "waits", "waiting": 1}]'
    for _ in range(2):
        api.rows(
            """INSERT INTO celeriac.passes (role, by, free, claimants, given)
            VALUES ('turns of', 'beat', 1, CAST(:seen AS jsonb), '{"other": 1}')""", seen=seen,
        )  # fmt: skip
    told = api.get("/api/shares?role=turns of")
    assert {one["account"]: one["rounds_waited"] for one in told["accounts"]} == {"waits": 2, "other": 0}
    assert told["cursor"] == "other"
    everywhere = api.get("/api/shares?limit=1000")
    assert (everywhere["cursor"], everywhere["accounts"][0]["rounds_waited"]) == (None, None)
