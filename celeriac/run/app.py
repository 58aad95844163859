"""The parts of the app that runs need: a ticket needs all of them, a handler's run and the reports about it some."""

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
from celeriac.settle.outcome import Started
from celeriac.store.connections import Database


class Backend(Protocol):
    """Celery's result backend: what it stores during a run is the run's outcome."""

    def succeed(self, run: Run, result: Any) -> None: ...
    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, *, request: Any = None
    ) -> Any: ...
    def spread(self, run: Run, request: Any, error: Any, *, call_errbacks: bool = True) -> None: ...
    def exception_to_python(self, exc: Any) -> Any: ...


class Execute(Protocol):
    """A function that runs a task's handler and leaves the outcome in its run.
    `direct`: what a ticket's direct calls share.
    """

    def __call__(self, app: HandlerApp, run: Run, direct: Any = None) -> None: ...


class TaskApp(Protocol):
    """Celery's configuration and tasks, their roles, and the database with their rows."""

    @property
    def conf(self) -> Any: ...
    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def roles(self) -> Roles: ...
    @property
    def database(self) -> Database: ...


class HandlerApp(TaskApp, Protocol):
    """The app as the run of one handler needs it: also what Celery's tracer uses,
    and the backend that gets the outcome.
    """

    @property
    def loader(self) -> Any: ...
    @property
    def backend(self) -> Backend: ...


class ReporterApp(TaskApp, Protocol):
    """The app as the event reporter of a ticket's tasks needs it: also the journal, which takes the events."""

    @property
    def journal(self) -> Journal: ...


class RunApp(HandlerApp, ReporterApp, Protocol):
    """The app as a whole ticket needs it: also its settings, and the parts that start it,
    go on after it and settle it.
    """

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
