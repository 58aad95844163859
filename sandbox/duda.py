"""Duda's Partner API, for the endpoints that building InstaSites needs.

Source: Duda Developer Documentation, "Partner API Reference" (Sites, Site Content; "Error", Introduction).
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from sandbox.sites import Refused, Sites
from sandbox.stand_ins import Asked, Reply, Request, refusal

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


class DudaApi:
    """What may be asked of the sites, and by whom."""

    name, prefix = "duda", "/api/"

    def __init__(self, sites: Sites, credentials: tuple[str, str]) -> None:
        self.sites, self._credentials = sites, credentials
        self.authorization = b"Basic " + base64.b64encode(":".join(credentials).encode())

    def environ(self, http_url: str) -> dict[str, str]:
        user, password = self._credentials
        return {"DUDA_BASE_URL": f"{http_url}/api", "DUDA_API_USER": user, "DUDA_API_PASSWORD": password}

    def describe(self) -> Any:
        return self.sites.describe()

    def clear(self) -> None:
        self.sites.clear()

    def answer(self, request: Request) -> Asked | Reply:
        given = (request.headers.get("Authorization") or "").encode()
        if not hmac.compare_digest(given, self.authorization):
            return refusal(401, "Unauthorized", "Wrong user or password", WWW_Authenticate="Basic")
        try:
            body = json.loads(request.body or b"{}")
        except ValueError:
            return refusal(400, "InvalidInput", "The request body is not JSON")
        if not isinstance(body, dict):
            return refusal(400, "InvalidInput", "The request body is not a JSON object")
        return self._find(request.method, request.path, body)

    def _find(self, method: str, path: str, body: dict[str, Any]) -> Asked | Reply:
        for operation, wanted, pattern, endpoint in ENDPOINTS:
            match = pattern.fullmatch(path)
            if match and method == wanted:
                name = unquote(match[1])
                return Asked(operation, name or _external_id(body), partial(self._perform, endpoint, name, body))
        return refusal(404, "ResourceNotExist", f"There is no {method} {path}")

    def _perform(self, endpoint: Endpoint, name: str, body: dict[str, Any]) -> Reply:
        try:
            document = endpoint(self.sites, name, body)
        except Refused as refused:
            return refusal(400, refused.error_code, refused.message)
        return Reply(204) if document is None else Reply(200, document)


def _external_id(body: dict[str, Any]) -> str:
    data = body.get("site_data")
    return str(data.get("external_uid")) if isinstance(data, dict) else ""
