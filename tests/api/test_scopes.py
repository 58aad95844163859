"""Without the right token, no route of the document lets anybody through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from celeriac.api.gate import OPEN
from celeriac.operate.tokens import IMPLIED
from tests.api.server import Api, problem

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


def test_a_token_that_is_too_narrow_opens_no_route(api: Api) -> None:
    """Each route is asked with all the scopes that do not imply its own."""
    tried = 0
    for method, path, scope in closed(api):
        narrow = [name for name, may in IMPLIED.items() if scope not in may]
        if narrow:
            token = api.token(f"too narrow {method} {path}", *narrow)
            answer = api.ask_with(token, method, path)
            assert scope in problem(answer, 403)["detail"], f"{method} {path}"
            assert "insufficient_scope" in answer.headers["www-authenticate"]
            tried += 1
    assert tried
