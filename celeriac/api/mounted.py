"""The dashboard under `/admin`. It bypasses the gate, since it has sessions instead of tokens in headers."""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from celeriac.api.gate import BURST
from celeriac.api.limits import Buckets
from celeriac.operate.audit import VIA

if TYPE_CHECKING:
    from celeriac.app import Celeriac

UNDER = "/admin"

MISSING = "The dashboard needs `pip install 'celeriac[dashboard]'`; the API serves without it.\n"


class ThreadSafeBuckets(Buckets):
    """Buckets that the dashboard's threads share."""

    def __init__(self, rate: float, burst: float) -> None:
        super().__init__(rate, burst)
        self._turn = threading.Lock()

    def take(self, key: str) -> float:
        with self._turn:
            return super().take(key)


class Mounted:
    """Serves the dashboard under `/admin`, or a note on what to install; all other requests go on to the gate."""

    def __init__(self, app: ASGIApp, celeriac: Celeriac) -> None:
        self.app = app
        self.dashboard = _dashboard(celeriac)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not f"{path}/".startswith(f"{UNDER}/"):
            VIA.set("API")
            await self.app(scope, receive, send)
            return
        VIA.set("dashboard")
        root = scope.get("root_path", "") + UNDER
        await self.dashboard(
            {**scope, "root_path": root, "path": f"{root}{path.removeprefix(root) or '/'}"}, receive, send
        )


def _dashboard(celeriac: Celeriac) -> ASGIApp:
    try:
        module = importlib.import_module("celeriac.dashboard.app")
    except ModuleNotFoundError as missing:
        if missing.name not in ("jinja2", "markupsafe"):
            raise
        return PlainTextResponse(MISSING, 501)
    failures, requests = celeriac.settings.api_failures, celeriac.settings.api_requests
    made: ASGIApp = module.create(
        celeriac, ThreadSafeBuckets(failures / 60, failures), ThreadSafeBuckets(requests, requests * BURST)
    )
    return made
