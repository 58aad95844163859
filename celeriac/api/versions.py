"""`/api/v1/…` is `/api/…`: the same routes under a name that later versions will leave alone."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

UNDER = "/api"

V1 = "/api/v1"

#: The key of a scope for the path as requested.
ASKED = "celeriac.asked_path"


class Versioned:
    """Outermost: layers after it know one path for each endpoint."""

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
