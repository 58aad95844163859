"""The OpenAPI document: FastAPI's, with the errors that each endpoint can answer."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi

from celeriac.api.callers import Reader
from celeriac.api.examples import Examples
from celeriac.api.problems import MEDIA_TYPE, Problem, ProblemDocument

_DESCRIPTIONS = {
    400: "It could not be read.",
    401: "There is no valid token.",
    403: "The token's scope is too narrow.",
    404: "There is no such thing.",
    405: "Not with this method.",
    409: "It is not possible as things stand; the detail says why.",
    413: "The body is too large.",
    422: "The request does not fit; each error names its field.",
    429: "Too often; Retry-After says when again.",
    431: "The request's line and headers are too long.",
    500: "An error of the server's.",
    503: "Postgres does not answer, or somebody's open transaction has what this needs; Retry-After says when again.",
}
_CHANGES = frozenset({"post", "put", "patch", "delete"})

router = APIRouter(tags=["about"])


@router.get("/openapi.json", responses={200: {"content": {"application/json": {"example": {"openapi": "3.1.0"}}}}})
def get_openapi_document(request: Request, _: Reader) -> dict[str, Any]:
    """Return this document."""
    return document(request.app)


def document(api: FastAPI) -> dict[str, Any]:
    """Return the document, made at the first call."""
    if api.openapi_schema is None:
        made = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
        api.openapi_schema = _with_problems(made)
        Examples(made).add(made)
    return api.openapi_schema


def _with_problems(made: dict[str, Any]) -> dict[str, Any]:
    schemas = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    described = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= described.pop("$defs") | {"ProblemDocument": described}
    made["components"]["responses"] = {f"Problem{status}": _response(status) for status in _DESCRIPTIONS}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            operation["responses"] |= _problems(path, method, operation)
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _never_null(parameter["schema"])
    return made


def _response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    example = Problem(status, _DESCRIPTIONS[status]).document("/api/tasks/7").model_dump(exclude_none=True)
    return {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}


def _problems(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Return the errors that an operation can answer."""
    if not operation.get("security"):
        return {status: _reference(int(status)) for status in ("431", "500", "503")}
    statuses = {401, 403, 422, 429, 431, 500, 503}
    statuses |= {404} if "{" in path else set()
    statuses |= {409, 413, 400} if method in _CHANGES else set()
    return {str(status): _reference(status) for status in sorted(statuses)}


def _never_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a parameter's schema: only a body can have null, a parameter is left out."""
    alternatives = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(alternatives) != 1:
        return schema
    return {name: schema[name] for name in schema if name != "anyOf"} | alternatives[0]


def _reference(status: int) -> dict[str, str]:
    return {"$ref": f"#/components/responses/Problem{status}"}
