"""The dashboard's ASGI application, for `/admin`: `create(celeriac, throttle, requests)`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from celeriac.dashboard import (
    accounts,
    alerts,
    bulks,
    capacity,
    enqueue,
    failures,
    letters,
    locks,
    overview,
    records,
    roles,
    schedules,
    session,
    system,
    task,
    tasks,
    templates,
    trail,
    workers,
    workflows,
)
from celeriac.dashboard.address import JSON, PAGE
from celeriac.dashboard.errors import answer
from celeriac.dashboard.guard import SAFE, Forbidden, Guard, NotSignedIn, Throttle
from celeriac.dashboard.page import Elsewhere, Repeated, Site
from celeriac.dashboard.reading import Reading
from celeriac.dashboard.shown import PACKED
from celeriac.errors import CeleriacError

if TYPE_CHECKING:
    from celeriac.app import Celeriac

ROUTERS = tuple(
    module.router
    for module in (
        session, overview, bulks, tasks, task, enqueue, roles, accounts, locks, workers, schedules,
        system, failures, records, trail, alerts, capacity, letters, workflows,
    )
)  # fmt: skip

_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def create(celeriac: Celeriac, throttle: Throttle, requests: Throttle) -> ASGIApp:
    """Build the application. `throttle` counts wrong tokens by address, `requests` all requests by token."""
    app = FastAPI(
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )  # fmt: skip
    named = _named(_static())
    app.state.site = Site(celeriac, Reading(celeriac), templates.environment(), {n: at for at, n in named})
    app.state.throttle, app.state.requests = throttle, requests
    app.state.files = {at: _static()[name] for at, name in named}
    app.add_api_route("/static/{name}", _serve, methods=["GET"])
    for router in ROUTERS:
        app.include_router(router)
    for kind in (
        CeleriacError, DBAPIError, Elsewhere, Exception, Forbidden, HTTPException, NoConnection, NotSignedIn, Repeated,
        RequestValidationError,
    ):  # fmt: skip
        app.add_exception_handler(kind, answer)
    app.add_middleware(GZipMiddleware, minimum_size=500, compresslevel=PACKED)
    return Guard(Suffix(app))


class Suffix:
    """Serves an address that ends in `.json` as the page's JSON, one that ends in `.html` as the page itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith(PAGE):
            scope = {**scope, "path": scope["path"].removesuffix(PAGE)}
        elif scope["type"] == "http" and scope["method"] in SAFE and scope["path"].endswith(JSON):
            scope = {**scope, "path": scope["path"].removesuffix(JSON), "json": True}
        await self.app(scope, receive, send)


def _static() -> Mapping[str, bytes]:
    folder = files("celeriac.dashboard") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _named(static: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Return each file's name with a digest of its content, for which browsers may keep it for ever, and its own."""
    stems = {name: name.rpartition(".") for name in static}
    return [(f"{s}.{hashlib.sha256(static[n]).hexdigest()[:12]}.{kind}", n) for n, (s, _, kind) in stems.items()]


async def _serve(name: str, request: Request) -> Response:
    content = request.app.state.files.get(name)
    if content is None:
        raise HTTPException(404, "There is no such file.")
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(content, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})
