"""The OpenAPI document is for strangers: it has examples, and its errors are problem documents."""

from __future__ import annotations

import re
from typing import Any, get_args

import jsonschema_rs
import pytest
from fastapi import APIRouter

from celeriac.api import server
from celeriac.api.examples import Examples
from celeriac.api.tasks import Word
from celeriac.store.states import WORDS
from tasks import app
from tests.api.described import document

DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]


def parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    several = (part for kind in ("anyOf", "allOf", "oneOf") for part in schema.get(kind, ()))
    items = [schema["items"]] if isinstance(schema.get("items"), dict) else []
    return [*schema.get("properties", {}).values(), *several, *items]


def has_example(schema: dict[str, Any], above: tuple[str, ...] = ()) -> bool:
    """Its own, or a part's."""
    if "examples" in schema:
        return True
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return name not in above and has_example(SCHEMAS[name], (*above, name))
    return any(has_example(part, above) for part in parts(schema))


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != "BoundFilter"])
def test_every_body_and_every_answer_has_an_example(name: str) -> None:
    assert has_example(SCHEMAS[name])


OPERATIONS = {
    f"{method} {path}": operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}


@pytest.mark.parametrize("named", OPERATIONS)
def test_every_body_and_every_answer_is_shown_by_an_example_that_fits(named: str) -> None:
    operation = OPERATIONS[named]
    parts = [operation.get("requestBody", {"content": {}}), *operation["responses"].values()]
    contents = [content for part in parts for content in resolved(part)["content"].values()]
    assert contents
    for content in contents:
        validator = jsonschema_rs.validator_for(content["schema"] | {"components": DOCUMENT["components"]})
        validator.validate(content["example"])
        assert content["example"], f"an empty one says nothing: {content}"


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    name = part.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["responses"][name] if name else part
    return found


#: What a client's method may begin with.
VERBS = {
    "boost", "cancel", "count", "create", "decommission", "delete", "disable", "discard", "explain", "generate", "get",
    "hasten", "list", "migrate", "pause", "prioritise", "recover", "replay", "report", "reset", "resume", "retry",
    "run", "set", "silence", "toggle", "trigger", "unsilence", "update",
}  # fmt: skip


def test_operation_ids_are_verbs_each_of_one_operation() -> None:
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)
    assert [
        one for one in ids if not re.fullmatch(r"[a-z]+(_[a-z]+)+", one) or one.partition("_")[0] not in VERBS
    ] == []


def listing() -> APIRouter:
    """Of an application, whose handler is called as one of the engine's is."""
    made = APIRouter()

    @made.get("/shop/tasks")
    def list_tasks() -> None: ...

    return made


def test_operations_of_an_application_keep_what_they_are_called_and_take_no_others_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, again = listing(), listing()
    own.add_api_route("/shop/carts", lambda: None, name="list_carts")
    own.add_api_route("/shop/carts/{cart}", lambda: None, name="a cart, and no name")
    monkeypatch.setattr(server, "_routers_of", lambda _: (own, again_under("/second", again)))
    paths = server.create(app).openapi()["paths"]
    ids = {path: told["get"]["operationId"] for path, told in paths.items() if "get" in told}
    everybody = [told["operationId"] for operations in paths.values() for told in operations.values()]
    assert len(everybody) == len(set(everybody))
    assert all(one.isidentifier() for one in everybody)
    assert (ids["/api/tasks"], ids["/shop/carts"]) == ("list_tasks", "list_carts")


def again_under(prefix: str, router: APIRouter) -> APIRouter:
    above = APIRouter(prefix=prefix)
    above.include_router(router)
    return above


def test_every_error_is_a_problem_document() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            errors = {status: told for status, told in operation["responses"].items() if status >= "400"}
            assert errors, f"{method} {path}"
            assert {told["$ref"].rpartition("/")[2] for told in errors.values()} == {f"Problem{s}" for s in errors}


def test_a_filter_takes_every_word_there_is_for_a_status() -> None:
    assert set(get_args(Word)) == set(WORDS)


def test_it_says_nothing_of_what_pydantic_made() -> None:
    assert not {"HTTPValidationError", "ValidationError"} & set(SCHEMAS)


def test_a_schema_that_refers_to_itself_has_an_example_that_ends() -> None:
    """An application's own: a tree of comments, say."""
    tree = {"properties": {"label": {"type": "string"}, "parts": {"type": "array", "items": {"$ref": "#/x/Tree"}},
        "above": {"anyOf": [{"$ref": "#/x/Tree"}, {"type": "null"}]}}, "type": "object"}  # fmt: skip
    examples = Examples({"components": {"schemas": {"Tree": tree}}})
    assert examples.of({"$ref": "#/x/Tree"}, is_sent=False) == {"label": "text", "parts": [], "above": None}
