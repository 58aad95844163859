"""A token that is limited enqueues what it may; nothing is written for anything else."""

from __future__ import annotations

from typing import Any

import pytest

from celeriac.errors import TokenRefused
from celeriac.operate import tokens
from celeriac.operate.allowed import Allowed
from celeriac.store.connections import Database
from tests.api.server import Api, problem


def build(site: int, role: str = "instasite_build", **options: object) -> dict[str, object]:
    return {"role": role, "kwargs": {"instasite_id": site, "account_id": 1}, **options}


def test_a_limited_token_enqueues_its_role_and_no_other(api: Api) -> None:
    token = api.token("builds-only", "enqueue", roles=("instasite_build",))
    assert api.ask_with(token, "POST", "/api/tasks", json=build(77101)).status_code == 201
    other = {"role": "product_resync", "dispensary_id": 77102}
    told = problem(api.ask_with(token, "POST", "/api/tasks", json=other), 403)
    assert "'product_resync'" in told["detail"]
    assert "--role product_resync" in told["detail"]
    assert api.rows("SELECT role FROM worker_tasks WHERE enqueued_by = 'builds-only'") == [("instasite_build",)]
    told = problem(api.ask_with(token, "POST", "/api/tasks/generate/resync", json={}), 403)
    assert "limited to certain roles" in told["detail"]


def test_of_a_bulk_with_another_role_nothing_is_written(api: Api) -> None:
    token = api.token("bulk-only", "enqueue", roles=("instasite_build",))
    tasks = [build(77103), {"role": "product_resync", "dispensary_id": 77104}]
    problem(api.ask_with(token, "POST", "/api/tasks/bulk", json={"tasks": tasks}), 403)
    assert api.rows("SELECT id FROM worker_tasks WHERE enqueued_by = 'bulk-only'") == []


def test_a_token_that_only_enqueues_does_so_with_its_account_keys_and_priorities(api: Api) -> None:
    limits: dict[str, Any] = {"accounts": ["acme", "acme-*"], "keys": ["acme:*"], "priorities": (None, 50)}
    token = api.token("acme's", "submit", **limits)

    def answered(**options: object) -> tuple[int, str]:
        own = {"account": "acme", "lock_key": "acme:1", "unique_key": "acme:u", "priority": 0} | options
        answer = api.ask_with(token, "POST", "/api/tasks", json=build(77105, **own))
        return answer.status_code, answer.json().get("detail", "")

    assert answered(task_id="acme:t", account="acme-2", priority=50) == (201, "")
    for refused, says in (
        ({"account": "other"}, "the account 'other', only with 'acme', 'acme-*'"),
        ({"account": None}, "the account '1'"),
        ({"lock_key": "other:1"}, "the lock_key 'other:1', only with 'acme:*'"),
        ({"unique_key": "other:1"}, "the unique_key 'other:1'"),
        ({"task_id": "other:1"}, "the task_id 'other:1'"),
        ({"priority": 51}, "the priority 51, only with -1000000 to 50"),
    ):
        status, detail = answered(**refused)
        assert status == 403
        assert says in detail
    assert len(api.rows("SELECT id FROM worker_tasks WHERE enqueued_by = 'acme''s'")) == 1
    assert "lacks the scope read" in problem(api.ask_with(token, "GET", "/api/tasks"), 403)["detail"]


def test_a_token_without_a_limit_is_refused_no_role() -> None:
    tokens.Bearer("1", "any", frozenset()).refuse_role("work")


@pytest.mark.parametrize(
    "limits", [{"roles": ["work"]}, {"accounts": ["a"]}, {"keys": ["a\0b"]}, {"priorities": (9, 8)}]
)
def test_a_limit_needs_the_scope_it_limits_and_a_meaning(database: Database, limits: dict[str, Any]) -> None:
    with database.transaction() as connection, pytest.raises(TokenRefused):
        tokens.create(
            connection, "reads", ["submit" if "keys" in limits else "read"], by="anna", allowed=Allowed.of(**limits)
        )


def test_the_list_shows_the_roles(database: Database) -> None:
    with database.transaction() as connection:
        tokens.create(connection, "shop", ["enqueue"], by="anna", allowed=Allowed.of(["work", "later"]))
        tokens.create(connection, "any", ["enqueue"], by="anna")
        assert [one.roles for one in tokens.every(connection)] == [None, ["later", "work"]]
