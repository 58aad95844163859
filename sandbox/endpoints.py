"""Which request means which operation on the sites, and how its outcome is told.

Source: Duda Developer Documentation, "Partner API Reference" (Sites, Site Content; "Error", Introduction).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from sandbox.sites import Refused, Sites

Endpoint = Callable[[Sites, str, dict[str, Any]], Any]


def _create(sites: Sites, _: str, body: dict[str, Any]) -> Any:
    return {"site_name": sites.create(body)}


# Operation, method, path below /api/sites/multiscreen, what it does. The first that matches counts.
_TABLE: tuple[tuple[str, str, str, Endpoint], ...] = (
    ("find", "GET", "/byexternalid/([^/]+)", lambda sites, external_id, _: sites.names_of(external_id)),
    ("create", "POST", "/create()", _create),
    ("update", "POST", "/update/([^/]+)", lambda sites, name, body: sites.update(name, body)),
    ("publish", "POST", "/publish/([^/]+)", lambda sites, name, _: sites.publish(name)),
    ("get_content", "GET", "/([^/]+)/content", lambda sites, name, _: sites.content(name)),
    ("content", "POST", "/([^/]+)/content", lambda sites, name, body: sites.update_content(name, body)),
    ("get", "GET", "/([^/]+)", lambda sites, name, _: sites.get(name)),
)
ENDPOINTS = tuple(
    (operation, method, re.compile(f"/api/sites/multiscreen{path}"), endpoint)
    for operation, method, path, endpoint in _TABLE
)


@dataclass(frozen=True)
class Reply:
    """`document` is sent as JSON, unless `content_type` says otherwise: then it is bytes."""

    status: int
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    @property
    def payload(self) -> bytes:
        if self.status == 204:
            return b""
        return json.dumps(self.document).encode() if self.content_type == "application/json" else bytes(self.document)


@dataclass(frozen=True)
class Call:
    """A request that names an operation; `subject` is the site's name or the external id."""

    operation: str
    subject: str
    _endpoint: Endpoint
    _name: str
    _body: dict[str, Any]

    def perform(self, sites: Sites) -> Reply:
        try:
            document = self._endpoint(sites, self._name, self._body)
        except Refused as refused:
            return refusal(400, refused.error_code, refused.message)
        return Reply(204) if document is None else Reply(200, document)


def refusal(status: int, error_code: str, message: str, **headers: str) -> Reply:
    """Duda's error object; `headers` with underscores for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"error_code": error_code, "message": message}, named)


def understand(method: str, path: str, raw: bytes) -> Call | Reply:
    """The call to perform, or the reply to a request that makes no sense."""
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        return refusal(400, "InvalidInput", "The request body is not JSON")
    if not isinstance(body, dict):
        return refusal(400, "InvalidInput", "The request body is not a JSON object")
    return _find(method, path, body) or refusal(404, "ResourceNotExist", f"There is no {method} {path}")


def _find(method: str, path: str, body: dict[str, Any]) -> Call | None:
    for operation, wanted, pattern, endpoint in ENDPOINTS:
        match = pattern.fullmatch(path)
        if match and method == wanted:
            name = unquote(match[1])
            return Call(operation, name or _external_id(body), endpoint, name, body)
    return None


def _external_id(body: dict[str, Any]) -> str:
    data = body.get("site_data")
    return str(data.get("external_uid")) if isinstance(data, dict) else ""
