"""Switches in bodies are true or false, and nothing that may mean one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from celeriac.api.server import create
from tasks import app
from tests.api.server import Api

DOCUMENT = create(app).openapi()


def switches() -> Iterator[tuple[str, str, str]]:
    """The method, path and name of each field that is true or false, wherever a body has one."""
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            for name, field in resolved(schema).get("properties", {}).items():
                if "boolean" in {field.get("type"), *(one.get("type") for one in field.get("anyOf", ()))}:
                    yield method.upper(), path, name


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][name] if name else schema
    return found


SWITCHES = list(switches())


def test_there_are_switches_to_look_at() -> None:
    assert {name for _, _, name in SWITCHES} == {"dry_run", "enabled", "paused", "create"}


@pytest.mark.parametrize(("method", "path", "name"), SWITCHES)
def test_what_is_neither_true_nor_false_is_refused(api: Api, method: str, path: str, name: str) -> None:
    for given in ("true", 1, 0, "off", []):
        errors = api.refused(422, method, path.format(job=1, account="a", role="r"), json={name: given})["errors"]
        assert name in {error["field"] for error in errors}, errors
