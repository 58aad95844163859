"""The part of the app that a worker needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Protocol

from celeriac.dispatch.app import DispatchApp
from celeriac.dispatch.passes import Dispatcher
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from celeriac.run.app import RunApp
from celeriac.store.connections import Database


class WorkerApp(RunApp, DispatchApp, Protocol):
    """The app as a worker needs it: as runs do, with connections to Postgres and Redis, its steps, and wake-ups."""

    @property
    def steps(self) -> Any: ...
    @property
    def events(self) -> Any: ...
    @property
    def database_url(self) -> str: ...
    @property
    def redis_url(self) -> str: ...
    @property
    def migrations(self) -> Path | None: ...
    def register_roles(self, served: Collection[str] | None = None) -> None: ...
    def dispatcher_on(self, database: Database, by: str) -> Dispatcher: ...
    def role_between_releases(self, name: str) -> tuple[Role, Signature]: ...
    def kick(self, roles: Iterable[str]) -> None: ...
