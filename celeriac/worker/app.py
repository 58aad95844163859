"""What a worker needs of the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from celeriac.run.app import RunApp


class WorkerApp(RunApp, Protocol):
    """Beside what runs need: how to reach Postgres and Redis, and what a worker does as it starts."""

    @property
    def steps(self) -> Any: ...
    @property
    def database_url(self) -> str: ...
    @property
    def redis_url(self) -> str: ...
    @property
    def migrations(self) -> Path | None: ...
    def register_roles(self) -> None: ...
