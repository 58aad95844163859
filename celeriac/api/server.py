"""The API, put together: `create(app)` is an ASGI application for uvicorn."""

from __future__ import annotations

import gc
import importlib
import logging
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.utils import generate_unique_id
from starlette.exceptions import HTTPException
from starlette.routing import Match
from uvicorn.config import LOGGING_CONFIG

from celeriac.alerts.review import AlertWatch
from celeriac.api import (
    alerts,
    bulks,
    capacity,
    dead_letters,
    doctor,
    document,
    enqueue,
    failures,
    health,
    locks,
    metrics,
    moves,
    policies,
    rates,
    scheduled_jobs,
    shares,
    steering,
    system,
    tasks,
    ticks,
    workers,
    workflows,
)
from celeriac.api.access import Access
from celeriac.api.app import Figures
from celeriac.api.callers import too_narrow
from celeriac.api.gate import VERIFIERS, Gate
from celeriac.api.listener import AT_ONCE, run
from celeriac.api.mounted import Mounted
from celeriac.api.parameters import known_only
from celeriac.api.paths import EscapedSlashes, Versioned, asked_path, slashes_again
from celeriac.api.problems import Problem, from_exception
from celeriac.api.protocol import Protocol
from celeriac.api.shared import Shared
from celeriac.api.turns import HANDLERS, TurnsOfAll, in_turn
from celeriac.errors import ConfigurationError
from celeriac.metrics.exporter import Exporter
from celeriac.operate import LONGEST, PATIENCE
from celeriac.repair.bulks import BulkWorker
from celeriac.store.connections import Database
from celeriac.store.failures import once_postgres_serves
from celeriac.version import __version__
from celeriac.worker import logs
from celeriac.worker.step import refuse_old_schema

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: The routers, in the order in which paths are matched: fixed paths before those with `{task}`.
ROUTERS = tuple(
    module.router
    for module in (
        health, document, enqueue, moves, bulks, capacity, rates, steering, tasks, ticks, scheduled_jobs,
        system, policies, workers, dead_letters, workflows, failures, shares, locks, alerts,
        metrics, doctor,
    )
)  # fmt: skip


class Api(FastAPI):
    """A FastAPI application with Celeriac's OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        return document.document(self)


def create(app: Celeriac) -> FastAPI:
    """Build the ASGI application: the engine's endpoints, and those of the app's `Celeriac(routers="module:list")`."""
    theirs = _routers_of(app)
    api = Api(
        title="Celeriac", version=__version__, description=DESCRIPTION,
        dependencies=[Depends(slashes_again), Depends(known_only), Depends(in_turn, scope="function")],
        generate_unique_id_function=_operation_ids(theirs),
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )  # fmt: skip
    api.state.celeriac, api.state.turns = app, TurnsOfAll()
    api.state.readiness = Shared(health.ReadinessProbe(app).look)
    api.state.figures = Figures(app)
    api.state.metrics = Shared(Exporter(app).text)
    for router in (*theirs, *ROUTERS):
        api.include_router(router)
    for kind in (HTTPException, RequestValidationError):
        api.add_exception_handler(kind, _answer_error)
    api.add_middleware(Gate, celeriac=app)
    api.add_middleware(Mounted, celeriac=app)
    api.add_middleware(Versioned)
    api.add_middleware(EscapedSlashes)
    api.add_middleware(Access)
    return api


def serve(app: Celeriac, host: str, port: int, proxies: str | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises ConfigurationError if migrations are missing, a server's address cannot be read, or a switch is neither on
    nor off.
    """
    _routers_of(app)
    _ = app.enqueuer
    if app.settings.log_format == "json":
        logs.configure()
    app.database = Database(
        app.database_url, name="celeriac api", pool_size=HANDLERS + VERIFIERS, on_ready=app.kick,
        answers_within=app.settings.enqueue_timeout,
    )  # fmt: skip
    refuse_old_schema(app.database, app.migrations)
    once_postgres_serves(partial(app.register_roles, served=[]), lambda: None)
    app.database.limit(lock=PATIENCE, statement=LONGEST)
    # After it has stopped, uvicorn raises the signal again. This handler makes that a normal exit.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    in_text = app.settings.log_format == "text"
    config = uvicorn.Config(
        create(app), host=host, port=port, server_header=False, proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies, log_level="info", access_log=False, http=Protocol, ws="none", backlog=AT_ONCE,
        log_config=LOGGING_CONFIG if in_text else None,
    )  # fmt: skip
    if in_text:
        if not logging.getLogger().handlers:
            logging.basicConfig(level=logging.WARNING, format="%(levelname)s:  %(message)s")
        logs.in_text(*LOGGING_CONFIG["loggers"])
    run(config)


DESCRIPTION = """See and steer tasks, schedules and workers. Every request but health's needs a token
(`celeriac tokens create`); every error is an RFC 9457 problem document."""


def _operation_ids(theirs: Sequence[APIRouter]) -> Callable[[APIRoute], str]:
    """Return the function that names operations for generated clients by their handlers: a verb and its object.

    The name of an application's operation has its path and method if the handler's is taken or is no identifier.
    """
    ours = {route.endpoint for route in _routes(ROUTERS)}
    taken = Counter(route.name for route in _routes((*theirs, *ROUTERS)))

    def operation_id(route: APIRoute) -> str:
        is_its_own = route.name.isidentifier() and taken[route.name] == 1
        return route.name if is_its_own or route.endpoint in ours else generate_unique_id(route)

    return operation_id


def _routes(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    return (route for router in routers for route in router.routes if isinstance(route, APIRoute))


@asynccontextmanager
async def _lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Work on bulks while the server runs, and check alerts if neither a beat nor a worker does."""
    document.document(api)
    current_default_thread_limiter().total_tokens = HANDLERS
    ending = threading.Event()
    app: Celeriac = api.state.celeriac
    AlertWatch(app, ending).start()
    BulkWorker(app.database, app.settings.sweep_interval, ending).start()
    # Existing objects stay, so the garbage collector skips them: it would delay a request by a tenth of a second.
    gc.collect()
    gc.freeze()
    yield
    ending.set()


def _routers_of(app: Celeriac) -> Sequence[APIRouter]:
    if app.routers is None:
        return ()
    module, _, attribute = app.routers.partition(":")
    routers = getattr(importlib.import_module(module), attribute or "routers", None)
    if routers is None:
        raise ConfigurationError(f"routers={app.routers!r}: there is no such list; give 'module:name'")
    return list(routers)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer FastAPI's own errors with problem documents; the gate answers all other exceptions."""
    problem = from_exception(error)
    if problem.status_code in (400, 422):
        problem = _beyond_scope(request) or problem
    if problem.status_code == 405 and not isinstance(error, Problem):
        problem.headers = {"Allow": _allowed(request)}
    return problem.response(asked_path(request.scope))


def _beyond_scope(request: Request) -> Problem | None:
    """Return a 403 if the token lacks the scope: FastAPI parses input before it checks scopes, and the errors in it
    would reveal something.
    """
    bearer, method = getattr(request.state, "bearer", None), request.scope["method"].lower()
    path = request.scope["route"].path_format if "route" in request.scope else ""
    needed = document.document(request.app)["paths"].get(path, {}).get(method, {}).get("security", ())
    missing = {scope for one in needed for scope in one["token"]} - (bearer.may if bearer else set())
    return too_narrow(bearer, *missing) if bearer and missing else None


def _allowed(request: Request) -> str:
    """Return all methods at the path; FastAPI would return only those of the first endpoint there."""
    routes, named = request.app.router.routes, _documented(request)
    methods = [method for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if not named or method.lower() in named]
    asked = {method: {**request.scope, "method": method} for method in methods}
    allowed = [method for method in asked if any(r.matches(asked[method])[0] is Match.FULL for r in routes)]
    return ", ".join(["GET", "HEAD", *allowed[1:]] if "GET" in allowed else allowed)


def _documented(request: Request) -> Mapping[str, Any]:
    """Return the document's entry for the path: `/api/tasks/bulk` is its own path, although `{task}` matches it."""
    paths = document.document(request.app)["paths"]
    parts = {path: re.split(r"{\w+}", path) for path in paths}
    fitting = [path for path in paths if re.fullmatch(".+".join(map(re.escape, parts[path])), request.scope["path"])]
    return paths[max(fitting, key=lambda path: len("".join(parts[path])))] if fitting else {}
