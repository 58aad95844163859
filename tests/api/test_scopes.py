"""Without the right token, no route of the document lets anybody through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from celeriac.api.gate import OPEN
from celeriac.operate.tokens import IMPLIED
from tests.api import scopes
from tests.api.server import Api, problem
from tests.api.works import task

Operation = tuple[str, str, dict[str, Any]]


def operations(api: Api) -> Iterator[Operation]:
    for path, methods in api.get("/openapi.json")["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def closed(api: Api) -> list[tuple[str, str, str]]:
    """Method, path and scope of every route but health."""
    return [
        (method, re.sub(r"\{\w+\}", "1", path), operation["security"][0]["token"][0])
        for method, path, operation in operations(api)
        if path not in OPEN
    ]


def test_every_route_but_health_names_one_scope(api: Api) -> None:
    for method, path, operation in operations(api):
        if path in OPEN:
            assert "security" not in operation
        else:
            (security,) = operation["security"]
            assert len(security["token"]) == 1, f"{method} {path}"
            assert security["token"][0] in IMPLIED


def test_reading_never_asks_for_more_than_read_and_changing_never_for_less(api: Api) -> None:
    for method, path, scope in closed(api):
        assert (scope == "read") == (method == "GET"), f"{method} {path}"


def invalid_token(api: Api, kind: str) -> str | None:
    if kind == "none":
        return None
    token = api.token(f"{kind} one", "admin")
    if kind == "wrong":
        return token[:-3] + "AAA"
    column = {"revoked": "revoked_at", "expired": "expires_at"}[kind]
    api.rows(
        f"UPDATE celeriac.api_tokens SET {column} = now() - interval '1 second' WHERE name = :name", name=f"{kind} one"
    )
    return token


@pytest.mark.parametrize("kind", ["none", "wrong", "revoked", "expired"])
def test_a_token_that_is_not_valid_opens_no_route(api: Api, kind: str) -> None:
    token = invalid_token(api, kind)
    for method, path, _ in closed(api):
        assert problem(api.ask_with(token, method, path), 401), f"{method} {path}"


def test_each_operation_is_opened_by_the_scopes_that_the_page_says_and_no_other(api: Api) -> None:
    """With a body that is no JSON, which is nothing to tell a token that is refused, and ids that nobody has."""
    assert scopes.PAGE.read_text() == scopes.page(), "python -m tests.api.scopes"
    broken = {"content": b"{", "headers": {"Content-Type": "application/json"}}
    for method, path, needed in scopes.operations():
        address = re.sub(r"\{\w+\}", "999999999", path)
        for scope in IMPLIED:
            answer = api.ask(method, address, scope=scope, **({} if method == "GET" else broken))
            assert answer.status_code < 500, f"{method} {path}"
            if not scopes.opens(scope, needed):
                assert f"lacks the scope {needed}" in problem(answer, 403)["detail"], f"{scope}: {method} {path}"
                assert "insufficient_scope" in answer.headers["www-authenticate"]
            else:
                assert answer.status_code != 403, f"{scope}: {method} {path}"


def test_what_the_page_says_is_hidden_from_view_is_hidden(api: Api) -> None:
    said = {"args": '["s3cret"]', "kwargs": '{"note": "s3cret"}', "result": '{"is": "s3cret"}'}
    failed = task(api, "failed", role="told", error_message="ValueError: s3cret", progress='{"at": "s3cret"}', **said)
    job = api.rows.one(
        """INSERT INTO celeriac.scheduled_jobs (name, target, kwargs, cron_expression)
        VALUES ('told', 'instasite_build', '{"instasite_id": "s3cret"}', '@yearly') RETURNING id"""
    )
    telling = set()
    for path in [path for method, path, _ in scopes.operations() if method == "GET"]:
        named = {"task": str(failed), "job": str(job)}
        address = re.sub(r"\{(\w+)\}", lambda part: named.get(part[1], "told"), path)  # noqa: B023
        assert "s3cret" not in api.ask("GET", address, scope="view").text, path
        if "s3cret" in api.ask("GET", address, scope="read").text:
            assert scopes.hidden("GET", path), f"{path} hides nothing, says the page"
            telling.add(path)
    assert len(telling) > 5, telling
