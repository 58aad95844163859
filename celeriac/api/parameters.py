"""Query parameters. An unknown one is refused as a mistake, and so is one with two values."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from celeriac.api.callers import too_narrow
from celeriac.api.document import document
from celeriac.api.gate import OPEN
from celeriac.api.problems import FieldError, Problem, invalid
from celeriac.app import Celeriac
from celeriac.insights import ARGUMENT, as_argument
from celeriac.insights.tasks.veil import refused
from celeriac.operate.tokens import CALLS, READ

#: How the OpenAPI document names the parameters for a handler's arguments.
DOCUMENTED = f"{ARGUMENT}NAME"

#: For `openapi_extra` of the endpoints that take `Arguments`.
WITH_ARGUMENTS: dict[str, Any] = {
    "parameters": [
        {
            "name": DOCUMENTED, "in": "query", "required": False, "schema": {"type": "string"},
            "description": "an argument of the handler, by its name: `arg.dispensary_id=17`, or `dispensary_id=17` "
            "where a handler of the server has it and no parameter is called so. The value is JSON, or else a text. "
            "Several have to hold all. A page looks at a bounded number of tasks for them: it may be short, or empty, "
            "and `next` leads on",
        }
    ]
}  # fmt: skip


async def known_only(request: Request) -> None:
    """Check the parameters. Raises Problem 422, or 403 for one that would reveal facts hidden from the token."""
    asked = request.query_params.keys()
    if not asked or request.scope["path"] in OPEN:  # health accepts any parameter
        return
    path, method = request.scope["route"].path_format, request.scope["method"].lower()
    operation = document(request.app)["paths"].get(path, {}).get(method, {})
    parameters = {one["name"]: one["schema"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    known = list(parameters)
    others = [name for name in asked if name not in known]
    short = request.state.short = _short(request.app.state.celeriac, others, known)
    narrowing = {short.get(name, name): value for name, value in request.query_params.items()}
    if CALLS not in request.state.bearer.may and (names := refused(narrowing)):
        raise too_narrow(request.state.bearer, READ, why=f"{', '.join(names)}: ")
    takes_arguments = DOCUMENTED in known
    if slips := [one for one in others if not takes_arguments or not short.get(one, one).startswith(ARGUMENT)]:
        right = f"there are {', '.join(known)}" if known else "there is none"
        errors = [FieldError(where="query", field=name, message=f"no such parameter; {right}") for name in slips]
        raise Problem(422, f"no such parameter: {', '.join(slips)}; {right}", kind="invalid", errors=errors)
    for name in asked:
        if len(request.query_params.getlist(name)) > 1 and parameters.get(name, {}).get("type") != "array":
            raise invalid(name, f"{name}: give it once", "query")


async def _arguments(request: Request) -> dict[str, Any] | None:
    """Return the arguments in the query. Raises Problem 422."""
    arguments: dict[str, Any] = {}
    for asked, value in request.query_params.multi_items():
        parameter = request.state.short.get(asked, asked)
        if not parameter.startswith(ARGUMENT):
            continue
        name = parameter.removeprefix(ARGUMENT)
        if not name or name in arguments:
            raise invalid(parameter, "give the name of an argument, and each once", "query")
        arguments[name] = as_argument(value)
    return arguments or None


def _short(app: Celeriac, names: list[str], known: list[str]) -> dict[str, str]:
    """Return the names that stand for `arg.NAME`: no parameters, but arguments of declared handlers."""
    if not names or DOCUMENTED not in known:
        return {}
    handlers = {name for declared in app.roles.own() for name in declared.signature.names}
    return {name: f"{ARGUMENT}{name}" for name in names if name in handlers}


Arguments = Annotated[dict[str, Any] | None, Depends(_arguments)]
