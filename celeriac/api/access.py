"""The access log: each answer of the API and the dashboard, its token's name and its duration, without secrets."""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celeriac import logged
from celeriac.api.gate import OPEN
from celeriac.run.lines import ids_of

logger = logging.getLogger(__name__)

#: Paths that probes and scrapers request all the time: logged at DEBUG.
ROUTINE = OPEN | {"/metrics"}


class Access:
    """Logs a line for each request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not logger.isEnabledFor(level := _level(scope)):
            await self.app(scope, receive, send)
            return
        scope.setdefault("state", {})
        began, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        finally:
            fields = _about(scope) | {"status": status, "seconds": round(time.perf_counter() - began, 6)}
            line = f"{fields['method']} {fields['path']} {status}"
            logger.log(level, "%s", line, extra=logged.of("request", **fields))


def _level(scope: Scope) -> int:
    return logging.DEBUG if scope["path"] in ROUTINE else logging.INFO


def _about(scope: Scope) -> dict[str, Any]:
    """Return the request's fields. `by`: the token's name, if it is valid."""
    bearer = scope["state"].get("bearer")
    whose = {"address": scope["client"][0] if scope.get("client") else None, "by": bearer.name if bearer else None}
    return {"method": scope["method"], "path": scope["path"], **whose} | ids_of(Headers(scope=scope).get("traceparent"))
