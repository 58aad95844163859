"""The app as the seam sees it, one protocol for each part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from celeriac.dispatch.publish import Publisher
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.roles.declare import Roles
from celeriac.roles.role import Role
from celeriac.roles.signature import Signature
from celeriac.run.settler import Settler
from celeriac.seam.beside import Beside
from celeriac.settings import Settings
from celeriac.store.connections import Database
from celeriac.store.drivers import Bare

#: The objects that can hold a caller's transaction.
Bound = Session | Connection | Bare


class Ambient(Protocol):
    """A transaction that a framework has open where a call is made.

    `connection` works as a `Connection` for the verbs; None if the engine's schema lies in another database.
    """

    @property
    def connection(self) -> Any: ...
    def after_commit(self, act: Callable[[], None]) -> None: ...
    def brings(self, task_ids: Collection[str]) -> set[str]:
        """Return which of these tasks are enqueued after its commit."""


class CallAfterCommit:
    """A call to be made after a commit. `task_ids`: of the tasks that it enqueues."""

    def __init__(self, act: Callable[[], Any], task_ids: Collection[str]) -> None:
        self.act, self.task_ids = act, task_ids

    def __call__(self) -> Any:
        return self.act()


class EnqueuerApp(Protocol):
    """The app of the enqueuer, which writes new rows and sends wake-ups."""

    settings: Settings

    @property
    def ambient(self) -> Callable[[], Ambient | None]: ...

    @property
    def conf(self) -> Any: ...
    @property
    def database(self) -> Database: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def beside(self) -> Beside: ...
    def role_named(self, name: str) -> tuple[Role, Signature]: ...
    def role_between_releases(self, name: str) -> tuple[Role, Signature]: ...
    def role_declared(self, name: str) -> tuple[Role, Signature]: ...


class ResultsApp(Protocol):
    """The app of Celery's result backend, which reads rows and settles a success within the handler's session."""

    @property
    def ambient(self) -> Callable[[], Ambient | None]: ...

    @property
    def database(self) -> Database: ...
    @property
    def settler(self) -> Settler: ...
    @property
    def redis_url(self) -> str: ...


class Inserts(Protocol):
    """The writer of new rows."""

    @property
    def insert(self) -> Callable[[list[NewTask], Bound | None], list[Receipt | None]]: ...


class SeamApp(EnqueuerApp, Protocol):
    """The app of the producer, which turns what Celery publishes into rows."""

    @property
    def tasks(self) -> Mapping[str, Any]: ...
    @property
    def roles(self) -> Roles: ...
    @property
    def backend(self) -> Any: ...
    @property
    def enqueuer(self) -> Inserts: ...
    @property
    def producer_pool(self) -> Any: ...
    @property
    def process_name(self) -> str: ...
    def kick(self, roles: Iterable[str]) -> None: ...
