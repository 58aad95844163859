"""Requested paths: the version in them, and slashes within names.

`/api/v1/…` is `/api/…`: the same routes under a name that later versions will leave alone. `%2F` is part of a name, so
`/api/tasks/a%2Fb` is about the task `a/b`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

UNDER = "/api"

V1 = "/api/v1"

#: The scope's key for the path as it was requested.
ASKED = "celeriac.asked_path"

#: A stand-in for a slash while routes are matched; no UTF-8 text has it.
SLASH = "\udc2f"


class Versioned:
    """Removes the version from a path, so that each endpoint has one path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path.startswith(f"{V1}/"):
            asked = scope.get(ASKED, path)
            scope = {**scope, "path": UNDER + path.removeprefix(V1), ASKED: asked}
        await self.app(scope, receive, send)


def asked_path(scope: Scope) -> str:
    """Return the path as it was requested."""
    asked: str = scope.get(ASKED) or scope["path"]
    return asked


class EscapedSlashes:
    """Keeps escaped slashes from splitting the path of the API; the dashboard's paths stay as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2f" in raw.lower() and scope["path"].startswith(f"{UNDER}/"):
            parts = raw.partition(b"?")[0].decode("latin-1").split("/")
            path = "/".join(unquote(part).replace("/", SLASH) for part in parts)
            scope = {**scope, "path": path, ASKED: scope["path"]}
        await self.app(scope, receive, send)


async def slashes_again(request: Request) -> None:
    """Restore escaped slashes in a route's parameters, before these are read."""
    named: Mapping[str, Any] = request.scope["path_params"]
    request.scope["path_params"] = {
        name: value.replace(SLASH, "/") if isinstance(value, str) else value for name, value in named.items()
    }
