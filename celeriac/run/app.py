"""What runs need of the app, as do those above them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from celeriac.dispatch.app import DispatchApp
from celeriac.dispatch.passes import Dispatcher
from celeriac.dispatch.publish import Publisher
from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from celeriac.run.journal import Journal
from celeriac.run.limited import Limited
from celeriac.run.run import Run
from celeriac.run.settler import Settler
from celeriac.run.tally import Tally
from celeriac.settings import Settings
from celeriac.store.connections import Database


class Backend(Protocol):
    """Celery's result backend: what it stores of the run under way is the run's outcome."""

    def succeed(self, run: Run, result: Any) -> None: ...
    def store_result(self, task_id: str, result: Any, state: str, *, request: Any = None) -> Any: ...
    def spread(self, request: Any, error: Any, *, call_errbacks: bool = True) -> None: ...
    def exception_to_python(self, exc: Any) -> Any: ...


class Execute(Protocol):
    """Runs a task's handler; the outcome is in its run. `direct`: what the direct calls of its ticket share."""

    def __call__(self, app: RunApp, run: Run, direct: Any = None) -> None: ...


class RunApp(DispatchApp, Protocol):
    """Its settings, what of Celery's own a run needs, and the parts that runs are made of."""

    settings: Settings

    @property
    def execute(self) -> Execute: ...
    @property
    def conf(self) -> Any: ...
    @property
    def loader(self) -> Any: ...
    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def process_name(self) -> str: ...
    @property
    def database(self) -> Database: ...
    @property
    def roles(self) -> Roles: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def settler(self) -> Settler: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def limited(self) -> Limited: ...
    @property
    def tally(self) -> Tally: ...
    def role_named(self, name: str) -> tuple[Role, Signature]: ...
    def kick(self, roles: Iterable[str]) -> None: ...
