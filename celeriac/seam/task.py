"""A Celery task whose call is a row."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from celery import signals
from celery.app.task import Task as CeleryTask
from celery.exceptions import Ignore
from celery.result import EagerResult
from celery.utils.imports import symbol_by_name
from vine import promise

from celeriac.enqueue.calls import BulkOptions, CallOptions, options_of_call, transaction_of
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue, CeleriacError, LeaseLost, Snooze, TaskCancelled
from celeriac.roles.bounds import is_duration
from celeriac.roles.role import Role
from celeriac.run import awaited_sessions, coroutines, originals
from celeriac.run import run as running
from celeriac.run.log import logger
from celeriac.seam.app import SeamApp
from celeriac.seam.configuration import diverts_calls
from celeriac.seam.result import EagerRowResult, RowResult

#: What `self.retry` takes.
RETRY_OPTIONS = frozenset({"args", "kwargs", "exc", "throw", "countdown", "eta", "max_retries"})

P = ParamSpec("P")
R = TypeVar("R")


class Enqueued(RowResult):
    """An `AsyncResult` that also says where the enqueue ended.

    `is_new` False: the row is the unfinished one that holds the unique key, and `id` is that one's. Enqueued from a
    handler, the row comes with that handler's outcome: `is_new` and `row_id` are None until then, and so they are where
    somebody's open transaction has the unique key. `due_at`: the row that was there already is planned for then;
    `app.hasten(id)` makes it due now.
    """

    is_new: bool | None = None
    row_id: int | None = None
    due_at: datetime | None = None

    #: What `AsyncResult` sets on each result, until somebody has asked for it.
    _cache = None

    @classmethod
    def of(cls, app: SeamApp, task_id: str, receipt: Receipt | None) -> Enqueued:
        """What `AsyncResult` makes ready for whoever waits is made when somebody does: most never ask."""
        result = cls.__new__(cls)
        result.app, result.backend, result.id = app, app.backend, task_id
        if receipt:
            result.id, result.is_new, result.row_id = receipt.task_id, receipt.is_new, receipt.id
            if receipt.due_at is not None:
                result.due_at = receipt.due_at
        return result

    @property
    def on_ready(self) -> Any:
        """Celery's promise of the result."""
        made = self.__dict__.get("on_ready")
        if made is None:
            made = self.__dict__["on_ready"] = promise(self._on_fulfilled, weak=True)
        return made

    @on_ready.setter
    def on_ready(self, made: Any) -> None:
        self.__dict__["on_ready"] = made


if TYPE_CHECKING:
    overridable_property = property
else:

    class overridable_property:  # noqa: N801
        """A property that an attribute of the same name goes before: a handler may keep what it likes on its task."""

        def __init__(self, ask: Callable[[Any], Any]) -> None:
            self.ask, self.__doc__ = ask, ask.__doc__

        def __get__(self, task: Any, owner: type) -> Any:
            return self if task is None else self.ask(task)


class Task(CeleryTask, Generic[P, R]):
    """What `@app.task` makes. `.delay()` takes the handler's own parameters."""

    #: The whole app: a handler may ask it for anything.
    app: Any
    role_options: Mapping[str, Any] | None = None
    #: Whether it was declared with `role=`: then its queue has that name, else it is Celery's default one.
    _has_role = False
    #: The result backend that its class names, which no result goes to.
    backend_asked: Any = None
    #: Celery's own check of a call's arguments: intake's serves every way in, and once is enough.
    typing = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Attributes of a user's class that stand in the way of the row's own."""
        super().__init_subclass__(**options)
        said: Any = cls
        said.store_errors_even_if_ignored = True  # else Celery does not say of an ignored task that it is tried again
        if said.backend is not Task.backend:
            said.backend_asked, said.backend = said.backend, Task.backend
        if said.role is not Task.role:
            said.name, said.role = said.role, Task.role
            said.by_name = getattr(cls, "by_name", True)
            said._has_role = True

    @property
    def backend(self) -> Any:
        """Results are rows, whatever a class names."""
        return self.app.backend

    @property
    def role(self) -> Role:
        return self.app.roles.of(self)

    # -- enqueue ---------------------------------------------------------------------------------------------------

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """One row, in the state it has once this returns. Raises EnqueueRefused if it was not accepted."""
        return self.apply_async(args, kwargs) if originals.delay_is_celerys() else super().delay(*args, **kwargs)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """As `delay`, without blocking the event loop. Cancelled meanwhile, the task may have been accepted."""
        return await self.app.beside.enqueue(lambda _: self.delay(*args, **kwargs), {})

    def using(self, **options: Unpack[CallOptions]) -> Call[P]:
        """`task.using(priority=50, session=session).delay(7)`: options and typed arguments together."""
        return Call(self, options)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Enqueued:
        """Celery's spelling and options, and those of `CallOptions`.

        A call without options, or with a `session` alone, goes straight to its row, where nobody listens on Celery's
        way there; what is no list of arguments, Celery refuses.
        """
        if (not options or options.keys() == {"session"}) and _is_plain(args, kwargs) and self._is_heard_by_nobody():
            bound = transaction_of(self.name, options["session"], None) if options else None
            result = self.app.enqueue(self.name, args or (), kwargs or {}, bound)
            result.ignored = self.ignore_result
            return result
        return super().apply_async(args, kwargs, **(options_of_call(self.name, options) if options else {}))

    async def aapply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Enqueued:
        """As `apply_async`, without blocking the event loop; `session` may belong to that."""
        return await self.app.beside.enqueue(lambda said: self.apply_async(args, kwargs, **said), options)

    def _get_exec_options(self) -> dict[str, Any]:
        """Celery's, with the priority that its role was declared with: as an attribute Celery has deprecated it."""
        options: dict[str, Any] = super()._get_exec_options()
        said = (self.role_options or {}).get("priority")
        return options if said is None else options | {"priority": said}

    def _is_heard_by_nobody(self) -> bool:
        return (
            running.current() is None
            and not signals.before_task_publish.receivers
            and not signals.after_task_publish.receivers
            and self.expires is None
            and self._dump_pydantic_arguments is None
            and (self.soft_time_limit or 0) <= (self.time_limit or math.inf)
            and type(self).shadow_name is CeleryTask.shadow_name
            and self.app.sends_straight()
            and not diverts_calls(self.app.conf)
        )

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's eager call; its result can be awaited as any other."""
        result = super().apply(*args, **kwargs)
        if type(result) is EagerResult:
            result.__class__ = EagerRowResult
        return result

    def bulk(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], **options: Unpack[BulkOptions]
    ) -> list[Enqueued]:
        """Many rows in few statements; each call is a tuple of positional or a mapping of keyword arguments."""
        return self.app.enqueue_many(self.name, calls, **options)

    async def abulk(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], **options: Unpack[BulkOptions]
    ) -> list[Enqueued]:
        """As `bulk`, without blocking the event loop; `session` may belong to that."""
        return await self.app.beside.enqueue(lambda said: self.app.enqueue_many(self.name, calls, **said), options)

    # -- within a run ----------------------------------------------------------------------------------------------

    @property
    def run_under_way(self) -> running.Run:
        run = running.current()
        if run is None:
            raise CeleriacError(
                f"{self.name} is not running as a task here; only its handler can ask that, in its own process"
            )
        return run

    @property
    def _read_run(self) -> running.Run:
        """Also in a process that the handler has forked."""
        return running.inherited() or self.run_under_way

    @overridable_property
    def session(self) -> Any:
        """A `Session`; writes made here commit in one transaction with the task's outcome, or not at all.

        In an `async def` handler an `AsyncSession`: `await self.session.execute(…)`.
        """
        run = self.run_under_way
        return awaited_sessions.session(run) if run.is_async else run.session

    def early_commit(self) -> Any:
        """`with self.early_commit() as session:` commits at its end, while the task goes on: for what others have to
        see meanwhile. In an `async def` handler: `async with self.early_commit() as session:`.

        Fenced like the outcome: raises LeaseLost, and writes nothing, if the row belongs to somebody else by then.
        """
        run = self.run_under_way
        return awaited_sessions.early_commit(run) if run.is_async else run.early_commit()

    @overridable_property
    def idempotency_key(self) -> str:
        """The same for every attempt of this task: give it to outside systems."""
        return self._read_run.task.task_id

    @overridable_property
    def attempt(self) -> int:
        """1 for the first attempt of the round."""
        return self._read_run.task.retry_count + 1

    @overridable_property
    def stopped_because(self) -> str | None:
        """Why an `async def` handler gets `CancelledError`: "cancelled", "time limit" or "lease lost"."""
        stopping = self.run_under_way.stopping
        if stopping is None:
            return None
        return {TaskCancelled: "cancelled", LeaseLost: "lease lost"}.get(type(stopping), "time limit")

    @overridable_property
    def log(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines are kept with the task, and shown on its page; elsewhere than in a run a plain one."""
        run = running.current()
        return logger if run is None else run.log

    def progress(self, value: Any) -> Any:
        """Stores progress (JSON) and starts the time limit anew. Raises BadValue; LeaseLost if it lost its row.

        In an `async def` handler: `await self.progress(…)`.
        """
        run = self.run_under_way
        return coroutines.in_thread(lambda: run.progress(value)) if coroutines.loop_runs_here() else run.progress(value)

    def raise_if_cancelled(self) -> Any:
        """Raises TaskCancelled or LeaseLost if the task is to stop. In an `async def` handler it is awaited."""
        ask = self.run_under_way.raise_if_cancelled
        return coroutines.in_thread(ask) if coroutines.loop_runs_here() else ask()

    def snooze(self, seconds: float, why: str = "") -> Snooze:
        """`raise self.snooze(60, "not there yet")`: try later without burning an attempt. Raises BadValue."""
        if not is_duration(seconds):
            raise BadValue(f"{self.name}: snooze({seconds!r:.100}): give seconds, at most 100 years")
        return Snooze(seconds, why)

    def on_replace(self, sig: Any) -> Any:
        """Celery's; what is published from here on under the task's id comes in its place, unless it is refused."""
        run = running.current()
        if run is None or self.request.is_eager:
            return super().on_replace(sig)
        run.replaced = True
        try:
            return super().on_replace(sig)
        except Exception as error:
            run.replaced = isinstance(error, Ignore)
            raise

    def retry(self, *args: Any, **kwargs: Any) -> Any:
        """Celery's; outside of an eager run the next attempt is `scheduled_for` in SQL, as often as the row may.

        Raises BadValue for options that belong to the call: the row keeps those it was called with.
        """
        run = running.current()
        if run is not None and not self.request.is_eager and (others := sorted(kwargs.keys() - RETRY_OPTIONS)):
            raise BadValue(
                f"{self.name}: retry({others[0]}=…): a retry is the same task again, with the options of its call; it "
                "takes args, kwargs, exc, throw, countdown, eta and max_retries"
            )
        if run is not None and run.task.max_retries is not None and not self.request.is_eager:
            kwargs.setdefault("max_retries", run.task.max_retries)
        return super().retry(*args, **kwargs)


def _is_plain(args: Any, kwargs: Any) -> bool:
    return (args is None or isinstance(args, tuple | list)) and (kwargs is None or isinstance(kwargs, dict))


class Call(Generic[P]):
    """A task with options, waiting for its arguments."""

    def __init__(self, task: Task[P, Any], options: CallOptions) -> None:
        self.task = task
        self._options = options

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        return self.task.apply_async(args, kwargs, **self._options)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """As `delay`, without blocking the event loop; `session` may belong to that."""
        return await self.task.aapply_async(args, kwargs, **self._options)


def with_rows(base: Any) -> type[Task[..., Any]]:
    """A user's base class of tasks, whose calls are rows."""
    base = symbol_by_name(base)
    if base is CeleryTask:
        return Task
    if issubclass(base, Task):
        return base
    return type(base.__name__, (base, Task), {"__module__": base.__module__, "abstract": True})
