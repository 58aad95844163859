"""A token that is limited to roles enqueues those; nothing is written for another."""

from __future__ import annotations

import pytest

from celeriac.errors import TokenRefused
from celeriac.operate import tokens
from celeriac.store.connections import Database
from tests.api.server import Api, problem


def build(site: int, role: str = "instasite_build") -> dict[str, object]:
    return {"role": role, "kwargs": {"instasite_id": site, "account_id": 1}}


def test_a_limited_token_enqueues_its_role_and_no_other(api: Api) -> None:
    token = api.token("builds-only", "enqueue", roles=("instasite_build",))
    assert api.ask_with(token, "POST", "/api/tasks", json=build(77101)).status_code == 201
    other = {"role": "product_resync", "dispensary_id": 77102}
    told = problem(api.ask_with(token, "POST", "/api/tasks", json=other), 403)
    assert "'product_resync'" in told["detail"]
    assert "--role product_resync" in told["detail"]
    assert api.rows("SELECT role FROM worker_tasks WHERE enqueued_by = 'builds-only'") == [("instasite_build",)]


def test_of_a_bulk_with_another_role_nothing_is_written(api: Api) -> None:
    token = api.token("bulk-only", "enqueue", roles=("instasite_build",))
    tasks = [build(77103), {"role": "product_resync", "dispensary_id": 77104}]
    problem(api.ask_with(token, "POST", "/api/tasks/bulk", json={"tasks": tasks}), 403)
    assert api.rows("SELECT id FROM worker_tasks WHERE enqueued_by = 'bulk-only'") == []


def test_a_token_without_a_limit_is_refused_no_role() -> None:
    assert tokens.Bearer("1", "any", frozenset()).refusal("work") is None


def test_a_limit_needs_the_scope_it_limits(database: Database) -> None:
    with database.transaction() as connection, pytest.raises(TokenRefused, match="lacks"):
        tokens.create(connection, "reads", ["read"], by="anna", roles=["work"])


def test_the_list_shows_the_roles(database: Database) -> None:
    with database.transaction() as connection:
        tokens.create(connection, "shop", ["enqueue"], by="anna", roles=["work", "later"])
        tokens.create(connection, "any", ["enqueue"], by="anna")
        assert [one.roles for one in tokens.every(connection)] == [None, ["later", "work"]]
