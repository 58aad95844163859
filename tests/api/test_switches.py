"""Switches in bodies are true or false, whole numbers are whole, and nothing that may mean one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.described import document
from tests.api.server import Api

DOCUMENT = document()


def fields(kind: str) -> Iterator[tuple[str, str, str]]:
    """The method, path and name of each field of this kind, wherever a body has one."""
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            for name, field in resolved(schema).get("properties", {}).items():
                if kind in {field.get("type"), *(one.get("type") for one in field.get("anyOf", ()))}:
                    yield method.upper(), path, name


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


SWITCHES, NUMBERS = list(fields("boolean")), list(fields("integer"))


def test_there_are_switches_to_look_at() -> None:
    assert {name for _, _, name in SWITCHES} == {"dry_run", "later", "enabled", "paused", "create", "goes_on"}


def test_there_are_whole_numbers_to_look_at() -> None:
    assert {name for _, _, name in NUMBERS} >= {"priority", "max_retries", "most", "cap", "boost", "pid"}


@pytest.mark.parametrize(("method", "path", "name"), SWITCHES)
def test_what_is_neither_true_nor_false_is_refused(api: Api, method: str, path: str, name: str) -> None:
    for given in ("true", 1, 0, "off", []):
        errors = api.refused(422, method, path.format(job=1, account="a", role="r", task=1), json={name: given})[
            "errors"
        ]
        assert name in {error["field"] for error in errors}, errors


@pytest.mark.parametrize(("method", "path", "name"), NUMBERS)
def test_what_is_no_whole_number_is_refused(api: Api, method: str, path: str, name: str) -> None:
    for given in (True, "7", 7.5, [7]):
        errors = api.refused(422, method, path.format(job=1, account="a", role="r", task=1), json={name: given})[
            "errors"
        ]
        assert name in {error["field"] for error in errors}, errors


def test_a_whole_number_may_have_a_point(api: Api) -> None:
    """JSON has one kind of number: 7.0 is an integer."""
    state = {"worker_id": "points", "pid": 7.0, "max_concurrent_tasks": 4e0}
    api.ask("POST", "/api/workers/heartbeat", content=json.dumps(state), headers={"Content-Type": "application/json"})
    assert api.rows.one("SELECT (pid, concurrency) = (7, 4) FROM workers WHERE worker_id = 'points'")
