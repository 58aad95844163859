"""The run under way: what a handler may use of its task, and what it has requested."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from celery.exceptions import Reject
from celery.utils.serialization import UnpickleableExceptionWrapper
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac.enqueue.rows import NewTask
from celeriac.errors import BadValue, CeleriacError, LeaseLost, TaskCancelled
from celeriac.roles.role import Role
from celeriac.run import lease, outcomes
from celeriac.run.log import TaskLog
from celeriac.run.sessions import HandlersSession
from celeriac.settle import release
from celeriac.settle.outcome import Outcome, Started, Success
from celeriac.settle.tombstones import Tombstone
from celeriac.store import forks
from celeriac.store.connections import Database, end_silent
from celeriac.store.encoding import MOST_BYTES, Unfit, encoded
from celeriac.store.failures import is_locked
from celeriac.store.patience import patient
from celeriac.store.redact import HIDDEN, MOST_TEXT, Secrets
from celeriac.store.sensitive import Sensitive


class Cancellable(Protocol):
    """A handler's coroutine under way (`celeriac.run.coroutines.Awaited`)."""

    def stop(self, run: Run, error: BaseException) -> bool: ...


logger = logging.getLogger(__name__)

#: Seconds that progress waits for another transaction's lock.
PATIENCE = 0.5


class Run:
    """One started row in the hands of this process. Follow-ups and the session commit with its outcome.

    `became`: what its row is once it is settled; None if the outcome did not count. `traceback`, `error_repr`: those of
    its exception, without secrets. `raised`: the exception of its handler, before Celery made one that can be pickled.
    `late_link`: the id of its chain's next link, if that was read from a block only after the handler.
    `tombstones`: links that never come, as this one failed. `replaced`: the next enqueued task comes in its place.
    `is_linking`: its chain's next link is being published. `is_retried_apart`: its retry is not thrown, and becomes a
    task. `is_hopeless`: another attempt would fail as well. `own_state`: the last custom state that the handler
    recorded. `secret`: the sensitive arguments of its call. `awaited`: its coroutine while one is under way;
    `stopping`: why that is cancelled. `late_session`: its session, to be committed with its outcome once somebody's
    lock is gone. `on_loop`: its handler shares the loop of an asyncio pool; `is_async`: its handler is an `async def`
    one.

    `follow_ups`: tasks that come with its outcome; a tuple once that is being written, as no more can come with it.

    It ends once, by one of `succeed` to `lose`. An attempt that comes to nothing takes with it what it has enqueued and
    what it has written through its session; what its hooks enqueue afterwards belongs to its outcome.
    """

    # Attributes that most runs never set are the class's, because an instance attribute costs each run.
    retry_asked: outcomes.RetryAsked | None = None
    is_retried_apart: bool = False
    raised: BaseException | None = None
    outcome: Outcome | None = None
    settled: bool = False
    said: bool = False
    stopped: bool = False
    replaced: bool = False
    is_linking: bool = False
    late_link: str | None = None
    is_hopeless: bool = False
    own_state: dict[str, Any] | None = None
    logged: TaskLog | None = None
    opened: HandlersSession | None = None
    session_of_coroutine: Any = None
    late_session: HandlersSession | None = None
    became: str | None = None
    traceback: str | None = None
    error_repr: str | None = None
    secret: Sensitive | None = None
    on_limit: Callable[[Run], None] | None = None
    awaited: Cancellable | None = None
    stopping: BaseException | None = None
    on_loop: bool = False
    is_async: bool = False

    def __init__(self, task: Started, role: Role, database: Database) -> None:
        self.task = task
        self.role = role
        self.database = database
        self.follow_ups: list[NewTask] | tuple[NewTask, ...] = []
        self.tombstones: list[Tombstone] = []
        self.began = self.limited_since = time.monotonic()
        self.generation = forks.generation

    @property
    def log(self) -> TaskLog:
        """The task's own log, made at first use."""
        if self.logged is None:
            fields = {"task_id": self.task.task_id, "role": self.role.name}
            self.logged = TaskLog(self.database, self.task.id, self.task.retry_count + 1, fields)
        return self.logged

    def restart_limit(self) -> None:
        """Count the time limit from now; it interrupts the handler again."""
        self.limited_since = time.monotonic()
        self.stopped = False
        if self.on_limit is not None:
            self.on_limit(self)

    @property
    def canvas(self) -> dict[str, Any]:
        """The task's part in a workflow, as its message described it; empty for most tasks."""
        return {} if self.task.headers is None else self.task.headers.get("canvas", {})

    @property
    def workflow(self) -> str | None:
        """The id of the workflow that it, and what it enqueues, belongs to."""
        return None if self.task.headers is None else self.task.headers.get("workflow")

    @property
    def links(self) -> set[str]:
        """The ids of the tasks that its message names to come after it: its chain's next link, and callbacks."""
        canvas = self.canvas
        named = [*canvas.get("chain", ())[-1:], *canvas.get("callbacks", ())] if canvas else []
        links = {link["options"]["task_id"] for link in named if link["options"].get("task_id")}
        return links if self.late_link is None else {*links, self.late_link}

    @property
    def timeout(self) -> float | None:
        return self.task.timeout if self.task.timeout is not None else self.role.timeout

    @property
    def _own_hard(self) -> float | None:
        return None if self.task.headers is None else self.task.headers.get("time_limit")

    @property
    def timelimit(self) -> tuple[float | None, float | None]:
        """The hard and the soft limit (seconds), as Celery's requests have them.
        A call with a hard one alone has no soft one.
        """
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
        """Return the seconds from its start until its process is stopped."""
        return (self._limit or 0.0) + self.grace(otherwise)

    def grace(self, otherwise: float) -> float:
        """Return the seconds from its deadline until its process is stopped; see `Role.grace`."""
        return self.role.grace(self.task.timeout, otherwise, self._own_hard)

    @property
    def session(self) -> Session:
        """The handler's session, opened at first use; it commits with the task's outcome or not at all.

        Raises CeleriacError once the outcome is known, since a hook's writes would never be committed.
        """
        self.refuse_session()
        if self.opened is None:
            self.opened = HandlersSession(self.database.engine)
            self.opened.task = self.task.id
        return self.opened

    def refuse_session(self) -> None:
        """Raise CeleriacError once the outcome is known: a hook's writes would be lost."""
        if self.outcome is not None:
            raise CeleriacError(
                f"{self.role.name}: self.session commits with the outcome of the handler, which has ended: in a hook, "
                "use `with Session(self.app.database.engine) as session, session.begin():`, or enqueue what writes"
            )

    @contextmanager
    def early_commit(self) -> Iterator[Session]:
        """Open a transaction of its own. Raises LeaseLost, and writes nothing, if the row is no longer this run's."""
        with Session(self.database.engine) as session, session.begin():
            yield session
            self.hold(session)

    def hold(self, session: Session) -> None:
        """Keep its row this run's until this transaction ends. Raises LeaseLost if somebody else has it."""
        session.flush()
        session.connection().exec_driver_sql(end_silent())
        if not release.hold(session.connection(), self.task.id, self.task.token):
            raise LeaseLost(f"task {self.task.id} is no longer this worker's")

    def progress(self, value: Any, *, restarts_limit: bool = True) -> None:
        """Write progress. Raises BadValue, or LeaseLost if the row is no longer this run's.
        Skipped while the row is locked.
        """
        try:
            stored = encoded(value, MOST_BYTES)
        except Unfit as error:
            raise BadValue(f"{self.role.name}: progress cannot be stored: {error}") from None
        try:
            with patient(PATIENCE), self.database.statement() as connection:
                mine = lease.progress(connection, self.task.id, self.task.token, stored)
        except DBAPIError as error:
            if not is_locked(error):
                raise
            logger.warning("Progress of task %s is not written: somebody has locked its row", self.task.id)
            mine = True
        if not mine:
            raise LeaseLost(f"task {self.task.id} is no longer this worker's")
        if restarts_limit:
            self.restart_limit()

    def raise_if_cancelled(self) -> None:
        """Raise TaskCancelled or LeaseLost if the task was cancelled or taken away; for handlers that block where no
        signal reaches them.
        """
        with self.database.statement() as connection:
            cancelled = lease.is_cancelled(connection, self.task.id, self.task.token)
        if cancelled is None:
            raise LeaseLost(f"task {self.task.id} is no longer this worker's")
        if cancelled:
            raise TaskCancelled(f"task {self.task.id} was cancelled")

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def succeed(self, result: Any) -> None:
        """End with this result, encoded as it is stored. The session stays open: it commits with the outcome."""
        self.outcome = Success(self.task, result, bool(self.role.keep))

    def ignore(self) -> None:
        """End by Celery's `Ignore`: the tasks it has enqueued count, the writes of its session do not."""
        self.drop_session()
        self.outcome = outcomes.ignored(self.task, self.role, self.own_state)

    def give_way(self) -> None:
        """End because another task takes its place: the one it has enqueued."""
        self.drop_session()
        self.outcome = outcomes.replaced(self.task)

    def fail(self, error: BaseException, encoded_error: Any = None) -> None:
        """End in failure, or in another round. The handler's own exception is judged and reported, not Celery's
        copy.
        """
        error = self.raised or error
        if isinstance(error, Reject) and isinstance(error.reason, Exception):  # a `retry()` was not accepted
            error = error.reason
        self.take_back()
        self._end(outcomes.excused(self.task, error) or self._failed(error, encoded_error))

    def fail_in_spreading(self, error: BaseException) -> None:
        """End in failure before the whole workflow of a failed task was notified; tasks enqueued so far are kept and
        notify the rest.
        """
        self.drop_session()
        self._end(replace(self._failed(error), is_spread=True))

    def _failed(self, error: BaseException, encoded_error: Any = None) -> Outcome:
        return outcomes.failed(self.task, self.role, error, encoded_error, is_hopeless=self.is_hopeless)

    def note_spread(self) -> None:
        """Note that its successors in the workflow know that it failed."""
        if self.outcome is not None:
            self.outcome = replace(self.outcome, is_spread=True)

    def retry(self, error: BaseException) -> None:
        error = self._wrapped_by_retry(error)
        self.take_back()
        outcome = outcomes.excused(self.task, error) or outcomes.retried(self.task, error, self.retry_asked)
        if self.secret is not None and outcome.has_other_arguments:
            outcome.progress = HIDDEN  # it is searched for the secrets of the row, which will be others
        self._end(outcome)

    def _wrapped_by_retry(self, error: BaseException) -> BaseException:
        """Return the error that Celery's `Retry` was raised for, where Celery passes it on in pickled form only."""
        if self.raised is None or not isinstance(error, UnpickleableExceptionWrapper):
            return error
        return self.raised.__cause__ or self.raised.__context__ or error

    def snooze(self, seconds: float, why: str) -> None:
        self.take_back()
        self._end(outcomes.snoozed(self.task, seconds, why))

    def cancel(self) -> None:
        self.take_back()
        self.outcome = outcomes.cancelled(self.task)

    def expire(self) -> None:
        self.outcome = outcomes.expired(self.task)

    def requeue(self, error: BaseException) -> None:
        """End by Celery's `Reject(requeue=True)`."""
        self.take_back()
        self._end(outcomes.requeued(self.task, error))

    def lose(self, error: BaseException) -> None:
        """End as lost: the task runs again, and no attempt is used up."""
        self.take_back()
        self._end(outcomes.excused(self.task, error) or outcomes.lost(self.task, error))

    def _end(self, outcome: Outcome) -> None:
        """Set the outcome. Its error is cut to its length after its secrets are masked, because a cut-off secret would
        not be found.
        """
        if outcome.error is not None:
            outcome.error = self.without_secrets(outcome.error, outcomes.LONGEST_ERROR)
        self.outcome = outcome

    def without_secrets(self, text: str, most: int = MOST_TEXT) -> str:
        """Return the text, or its beginning, without the secrets of its call."""
        return text[:most] if self.secret is None else self.secrets.without(text, most)

    @cached_property
    def secrets(self) -> Secrets:
        """The values of its call's sensitive arguments."""
        return Secrets([]) if self.secret is None else self.secret.values(self.task.args, self.task.kwargs)

    def joined(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return a chord's body's arguments with its members' results, whose secrets are the run's from now on."""
        if self.secret is not None:
            self.secrets = self.secret.values(args, kwargs)
        return args, kwargs

    def reopen(self) -> None:
        """Drop its success, which the handler's own writes kept from being committed; it then ends in another way."""
        self.outcome = None

    def bring(self, tasks: list[NewTask]) -> bool:
        """Let these tasks come with its outcome; return False if that is being written, so that they would be lost.

        An asyncio task or a thread that a handler has left behind enqueues while another thread writes the outcome. No
        lock is taken: a signal's handler may enqueue, too.
        """
        waiting = self.follow_ups
        if isinstance(waiting, tuple):
            return False
        waiting.extend(tasks)
        return waiting is self.follow_ups or any(task is tasks[0] for task in self.follow_ups)

    def seal(self) -> None:
        """Let nothing more come with its outcome."""
        self.follow_ups = tuple(self.follow_ups)

    def unseal(self) -> None:
        """Let tasks come with its outcome again, which has not been written."""
        self.follow_ups = list(self.follow_ups)

    def take_back(self) -> None:
        """Drop the tasks it has enqueued and the writes of its session."""
        self.follow_ups = []
        self.tombstones.clear()
        self.drop_session()

    def drop_session(self) -> None:
        """Roll its session back."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.within(opened.end)


#: This thread's run; in a process that a handler has forked, the handler's.
UNDER_WAY: ContextVar[Run | None] = ContextVar("celeriac run", default=None)


def current() -> Run | None:
    """Return this thread's run, if any. A process that a handler has forked has none: it is a caller of its own."""
    run = UNDER_WAY.get()
    return run if run is None or run.generation == forks.generation else None


def inherited() -> Run | None:
    """Return this thread's run; in a process that a handler has forked, the handler's run, to be read only."""
    return UNDER_WAY.get()
