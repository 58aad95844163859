"""What runs need of the app: a ticket all of it, its tasks' handlers and what is told of them a part each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from celeriac.dispatch.passes import Dispatcher
from celeriac.dispatch.publish import Publisher
from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.run.journal import Journal
from celeriac.run.limited import Limited
from celeriac.run.run import Run
from celeriac.run.settler import Settler
from celeriac.run.tally import Tally
from celeriac.settings import Settings
from celeriac.store.connections import Database
from celeriac.store.started import Started


class Backend(Protocol):
    """Celery's result backend: what it stores of the run under way is the run's outcome."""

    def succeed(self, run: Run, result: Any) -> None: ...
    def store_result(self, task_id: str, result: Any, state: str, *, request: Any = None) -> Any: ...
    def spread(self, request: Any, error: Any, *, call_errbacks: bool = True) -> None: ...
    def exception_to_python(self, exc: Any) -> Any: ...


class Execute(Protocol):
    """Runs a task's handler; the outcome is in its run. `direct`: what the direct calls of its ticket share."""

    def __call__(self, app: HandlerApp, run: Run, direct: Any = None) -> None: ...


class TaskApp(Protocol):
    """Celery's configuration and tasks, their roles, and where their rows are."""

    @property
    def conf(self) -> Any: ...
    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def roles(self) -> Roles: ...
    @property
    def database(self) -> Database: ...


class HandlerApp(TaskApp, Protocol):
    """For the run of one handler: beside that, what Celery's tracer asks for and where its outcome goes."""

    @property
    def loader(self) -> Any: ...
    @property
    def backend(self) -> Backend: ...


class ReporterApp(TaskApp, Protocol):
    """For what others hear of a ticket's tasks: beside them, where events go."""

    @property
    def journal(self) -> Journal: ...


class RunApp(HandlerApp, ReporterApp, Protocol):
    """For a whole ticket: its settings, and the parts that start it, go on after it and settle it."""

    settings: Settings

    @property
    def execute(self) -> Execute: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def dispatcher(self) -> Dispatcher: ...
    @property
    def settler(self) -> Settler: ...
    def receive(self, role: Role, ask: Callable[[bool], Sequence[Started]]) -> Callable[[bool], Sequence[Started]]: ...
    @property
    def limited(self) -> Limited: ...
    @property
    def tally(self) -> Tally: ...
