"""The run under way: what a handler may ask of its task, and what it asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac.enqueue.rows import NewTask
from celeriac.errors import BadValue, CeleriacError, LeaseLost, TaskCancelled
from celeriac.roles.role import Role
from celeriac.run import lease
from celeriac.run.log import TaskLog
from celeriac.settle import release
from celeriac.settle.tombstones import Tombstone
from celeriac.settle.write import Outcome
from celeriac.store.connections import Database, end_silent
from celeriac.store.encoding import MOST_BYTES, Unfit, encoded
from celeriac.store.started import Started


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """Celery's `retry()` re-sends the task; here that is a wish for the settle."""

    delay: float | None
    at: str | None
    args: list[Any] | None
    kwargs: dict[str, Any] | None


@dataclass(slots=True)
class Run:
    """One started row in the hands of this process. Follow-ups and the session commit with its outcome.

    `became`: what its row is once it is settled; None if the outcome did not count. `traceback`: of what it raised.
    `tombstones`: links that never come, as this one failed. `replaced`: what it has asked for comes in its place.
    `is_spreading`: what it stores for other tasks now are tombstones.
    `is_hopeless`: another attempt would fail as well. `told`: the last state of its own that the handler told.
    """

    task: Started
    role: Role
    database: Database
    follow_ups: list[NewTask] = field(default_factory=list)
    tombstones: list[Tombstone] = field(default_factory=list)
    retry_asked: RetryAsked | None = None
    outcome: Outcome | None = None
    settled: bool = False
    said: bool = False
    stopped: bool = False
    replaced: bool = False
    is_spreading: bool = False
    is_hopeless: bool = False
    told: dict[str, Any] | None = None
    logged: TaskLog | None = None
    began: float = field(default_factory=time.monotonic)
    limited_since: float = field(default_factory=time.monotonic)
    opened: Session | None = None
    became: str | None = None
    traceback: str | None = None
    on_limit: Callable[[Run], None] | None = None

    @property
    def log(self) -> TaskLog:
        """Made at first use."""
        if self.logged is None:
            fields = {"task_id": self.task.task_id, "role": self.role.name}
            self.logged = TaskLog(self.database, self.task.id, self.task.retry_count + 1, fields)
        return self.logged

    def restart_limit(self) -> None:
        """The time limit counts from now."""
        self.limited_since = time.monotonic()
        if self.on_limit is not None:
            self.on_limit(self)

    @property
    def canvas(self) -> dict[str, Any]:
        """What its message said of the workflow it belongs to; empty for most."""
        return {} if self.task.headers is None else self.task.headers.get("canvas", {})

    @property
    def workflow(self) -> str | None:
        """The label of the workflow it belongs to, and what it enqueues."""
        return None if self.task.headers is None else self.task.headers.get("workflow")

    @property
    def links(self) -> set[str]:
        """The ids of what its message names to come after it: its chain's next link, and callbacks."""
        canvas = self.canvas
        named = [*canvas.get("chain", ())[-1:], *canvas.get("callbacks", ())] if canvas else []
        return {link["options"]["task_id"] for link in named if link["options"].get("task_id")}

    @property
    def timeout(self) -> float | None:
        return self.task.timeout if self.task.timeout is not None else self.role.timeout

    @property
    def _own_hard(self) -> float | None:
        return None if self.task.headers is None else self.task.headers.get("time_limit")

    @property
    def timelimit(self) -> tuple[float | None, float | None]:
        """Hard and soft, as Celery's requests have them. A call that says a hard one alone has no soft one."""
        own = self._own_hard
        return own or self.role.hard_timeout, None if own and own == self.task.timeout else self.timeout

    @property
    def left(self) -> float | None:
        """Seconds to its deadline, by this machine's monotonic clock; None without a time limit."""
        return None if self._limit is None else self.limited_since + self._limit - time.monotonic()

    @property
    def _limit(self) -> float | None:
        return self.role.time_limit if self.task.timeout is None else self.task.timeout

    def allowed(self, otherwise: float) -> float:
        """Seconds from its start until its process is stopped."""
        return (self._limit or 0.0) + self.grace(otherwise)

    def grace(self, otherwise: float) -> float:
        """Seconds from its deadline until its process is stopped; see `Role.grace`."""
        return self.role.grace(self.task.timeout, otherwise, self._own_hard)

    @property
    def session(self) -> Session:
        """Opened at first use; commits with the task's outcome or not at all.

        Raises CeleriacError once the outcome is known: a hook's writes would go nowhere.
        """
        if self.outcome is not None:
            raise CeleriacError(
                f"{self.role.name}: self.session commits with the outcome of the handler, which has ended: in a hook, "
                "use `with Session(self.app.database.engine) as session, session.begin():`, or enqueue what writes"
            )
        if self.opened is None:
            self.opened = Session(self.database.engine)
        return self.opened

    @contextmanager
    def early_commit(self) -> Iterator[Session]:
        """A transaction of its own. Raises LeaseLost, and nothing is written, if the row is no longer this run's."""
        with Session(self.database.engine) as session, session.begin():
            yield session
            session.flush()
            session.connection().exec_driver_sql(end_silent())
            if not release.hold(session.connection(), self.task.id, self.task.token):
                raise LeaseLost(f"task {self.task.id} is no longer this worker's")

    def progress(self, value: Any, *, restarts_limit: bool = True) -> None:
        """Raises BadValue, or LeaseLost if the row is no longer this run's."""
        try:
            told = encoded(value, MOST_BYTES)
        except Unfit as error:
            raise BadValue(f"{self.role.name}: progress cannot be stored: {error}") from None
        with self.database.statement() as connection:
            mine = lease.progress(connection, self.task.id, self.task.token, told)
        if not mine:
            raise LeaseLost(f"task {self.task.id} is no longer this worker's")
        if restarts_limit:
            self.restart_limit()

    def raise_if_cancelled(self) -> None:
        """Raises TaskCancelled or LeaseLost if so; for handlers that block where no signal reaches them."""
        with self.database.statement() as connection:
            cancelled = lease.is_cancelled(connection, self.task.id, self.task.token)
        if cancelled is None:
            raise LeaseLost(f"task {self.task.id} is no longer this worker's")
        if cancelled:
            raise TaskCancelled(f"task {self.task.id} was cancelled")

    def drop_session(self) -> None:
        """Rolls back what it has not committed."""
        opened, self.opened = self.opened, None
        if opened is None:
            return
        try:
            opened.close()
        except DBAPIError:
            opened.invalidate()  # the server has rolled back, or will


_current: ContextVar[Run | None] = ContextVar("celeriac run", default=None)


def current() -> Run | None:
    """The run this thread is in, if any."""
    return _current.get()


def enter(run: Run) -> Token[Run | None]:
    """The run is this thread's from here on."""
    return _current.set(run)


def leave(run: Run, token: Token[Run | None]) -> None:
    """Nothing of the run's session stays open, whoever used it."""
    _current.reset(token)
    if run.logged is not None:
        run.logged.end()
    if run.opened is not None:
        run.drop_session()
