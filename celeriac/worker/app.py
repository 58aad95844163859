"""What a worker needs of the app."""

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
    """Beside what runs need: how to reach Postgres and Redis, what a worker does as it starts, and whom it wakes."""

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
