"""The API, put together: `create(app)` is an ASGI application for uvicorn."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from celeriac.alerts.review import Watch
from celeriac.api import (
    alerts,
    capacity,
    dead_letters,
    document,
    enqueue,
    health,
    jobs,
    matching,
    metrics,
    operators,
    policies,
    scheduled_jobs,
    steering,
    system,
    tasks,
    trigger,
    workers,
    workflows,
)
from celeriac.api.app import count
from celeriac.api.gate import Gate
from celeriac.api.problems import from_exception
from celeriac.api.shared import Shared
from celeriac.errors import ConfigurationError
from celeriac.metrics.exporter import Exporter
from celeriac.store.connections import Database
from celeriac.worker.step import refuse_old_schema

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Handlers at once, each with a connection of the pool: none waits for one, none is opened for a single request.
HANDLERS = 20

#: In the order in which paths are looked up: what is named goes before what is `{task}`.
ROUTERS = tuple(
    module.router
    for module in (
        health, document, enqueue, matching, capacity, steering, tasks, jobs, scheduled_jobs, trigger, system, policies,
        workers, dead_letters, workflows, operators, alerts, metrics,
    )
)  # fmt: skip


class Api(FastAPI):
    """With the document as the API really is."""

    def openapi(self) -> dict[str, Any]:
        return document.document(self)


def create(app: Celeriac) -> FastAPI:
    """Serves the engine's endpoints, and those the application lists as `Celeriac(routers="module:list")`."""
    api = Api(
        title="Celeriac", version=version("celeriac"), description=DESCRIPTION,
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=_lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )  # fmt: skip
    api.state.celeriac, api.state.standing = app, health.Standing(app)
    api.state.counts = Shared(lambda: count(app))
    api.state.metrics = Shared(Exporter(app).text)
    for router in (*_of_the_application(app), *ROUTERS):
        api.include_router(router)
    for kind in (HTTPException, RequestValidationError):
        api.add_exception_handler(kind, _tell)
    api.add_middleware(Gate, celeriac=app)
    return api


def serve(app: Celeriac, host: str, port: int, proxies: str | None = None) -> None:
    """Until SIGTERM or Ctrl-C. Raises ConfigurationError if migrations are missing, or a switch says neither."""
    trigger.hooks_are_on()
    app.database = Database(app.database_url, name="celeriac api", pool_size=HANDLERS, on_ready=app.kick)
    refuse_old_schema(app)
    app.register_roles()
    # Once it has stopped, uvicorn raises the signal again, which would end the process by it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        create(app), host=host, port=port, server_header=False, proxy_headers=proxies is not None,
        forwarded_allow_ips=proxies, log_level="info", access_log=False,
    )  # fmt: skip


DESCRIPTION = """See and steer tasks, schedules and workers. Every request but health's needs a token
(`celeriac token create`); every error is an RFC 9457 problem document."""


@asynccontextmanager
async def _lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Looks at alerts meanwhile, where no beat and no worker does."""
    current_default_thread_limiter().total_tokens = HANDLERS
    ending = threading.Event()
    Watch(api.state.celeriac, ending).start()
    yield
    ending.set()


def _of_the_application(app: Celeriac) -> Iterable[APIRouter]:
    if app.routers is None:
        return ()
    module, _, attribute = app.routers.partition(":")
    found = getattr(importlib.import_module(module), attribute or "routers", None)
    if found is None:
        raise ConfigurationError(f"routers={app.routers!r}: there is no such list; give 'module:name'")
    return list(found)


async def _tell(request: Request, error: Exception) -> Response:
    """FastAPI would answer these itself, in its own form; whatever else is raised goes to the gate."""
    return from_exception(error).response(request.url.path)
