"""Query parameters: one that an endpoint does not have is a slip, and told as such."""

from __future__ import annotations

from fastapi import Request

from celeriac.api.document import document
from celeriac.api.gate import OPEN
from celeriac.api.problems import FieldError, Problem


async def known_only(request: Request) -> None:
    """Raises Problem 422."""
    asked = request.query_params.keys()
    if not asked or request.scope["path"] in OPEN:  # who asks for health may say what they like
        return
    path, method = request.scope["route"].path_format, request.scope["method"].lower()
    operation = document(request.app)["paths"].get(path, {}).get(method, {})
    known = [parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"]
    if slips := [name for name in asked if name not in known]:
        right = f"there are {', '.join(known)}" if known else "there is none"
        errors = [FieldError(where="query", field=name, message=f"no such parameter; {right}") for name in slips]
        raise Problem(422, f"no such parameter: {', '.join(slips)}; {right}", kind="invalid", errors=errors)
