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
from celeriac.enqueue.intake import other_queue
from celeriac.enqueue.rows import Receipt
from celeriac.errors import BadValue, CeleriacError, LeaseLost, Snooze, TaskCancelled
from celeriac.roles.bounds import is_duration
from celeriac.roles.role import Role
from celeriac.run import awaited_sessions, coroutines, originals
from celeriac.run import run as running
from celeriac.run.log import logger
from celeriac.seam import older
from celeriac.seam.app import SeamApp
from celeriac.seam.configuration import diverts_calls
from celeriac.seam.result import EagerRowResult, RowResult

#: Options of `self.retry`.
RETRY_OPTIONS = frozenset({"args", "kwargs", "exc", "throw", "countdown", "eta", "max_retries", "queue"})

P = ParamSpec("P")
R = TypeVar("R")


class Enqueued(RowResult):
    """An `AsyncResult` that also shows what the enqueue did.

    `is_new`: False if an unfinished task has the unique key; `id` is then that task's, and `due_at` the time for which
    it is planned (`app.hasten(id)` makes it due now). `is_new` and `row_id` are None while no row is known: within a
    handler, whose outcome inserts the row, and if an open transaction has the unique key.
    """

    is_new: bool | None = None
    row_id: int | None = None
    due_at: datetime | None = None

    #: The default until the result is read; `AsyncResult` sets it on each instance.
    _cache = None

    @classmethod
    def of(cls, app: SeamApp, task_id: str, receipt: Receipt | None, own: Any = None) -> Enqueued:
        """Build the result, without the parts for waiting: these are made when needed, as most results are not awaited.

        `own`: the task's own maker of results (`AbortableTask.AsyncResult`), whose class's methods are added.
        """
        result = cls.__new__(cls if own is None or makes_plain_results(own) else _with_methods(own(task_id).__class__))
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


#: The attribute of a result class in which `_with_methods` keeps the class made from it.
_WITH_ROWS = "__celeriac_with_rows__"


def makes_plain_results(own: Any) -> bool:
    """Return whether `own` makes plain results: it is None, or the `AsyncResult` that all of Celery's tasks have."""
    return own is None or getattr(own, "__func__", own) is CeleryTask.AsyncResult


def _with_methods(kind: type) -> type[Enqueued]:
    """Return a class of Enqueued that also has this class's methods.

    It is made once and kept as an attribute of the given class, so that it is freed together with an app's own class.
    """
    made: type[Enqueued] | None = vars(kind).get(_WITH_ROWS)
    if made is None:
        made = type(kind.__name__, (Enqueued, kind), {"__module__": kind.__module__})
        setattr(kind, _WITH_ROWS, made)
    return made


if TYPE_CHECKING:
    overridable_property = property
else:

    class overridable_property:  # noqa: N801
        """A property that an attribute of the same name overrides: a handler may keep anything on its task."""

        def __init__(self, ask: Callable[[Any], Any]) -> None:
            self.ask, self.__doc__ = ask, ask.__doc__

        def __get__(self, task: Any, owner: type) -> Any:
            return self if task is None else self.ask(task)


class Task(CeleryTask, Generic[P, R]):
    """A task, as `@app.task` makes it. `.delay()` takes the handler's own parameters."""

    #: The whole app: a handler may need anything of it.
    app: Any
    role_options: Mapping[str, Any] | None = None
    #: True if declared with `role=`: its queue then has the role's name, otherwise it is Celery's default queue.
    _has_role = False
    #: The result backend that a user's class names; it gets no results, and `check` reports it.
    backend_asked: Any = None
    #: False turns Celery's check of a call's arguments off: intake checks them once for every call.
    typing = False
    #: Celery's attribute since 5.7: how pydantic models become JSON.
    _dump_pydantic_arguments: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Move a user's class attributes aside where they would hide the row's own."""
        super().__init_subclass__(**options)
        said: Any = cls
        said.store_errors_even_if_ignored = True  # else Celery does not report a retry of a task with ignored result
        if said.backend is not Task.backend:
            said.backend_asked, said.backend = said.backend, Task.backend
        if said.role is not Task.role:
            said.name, said.role = said.role, Task.role
            said.by_name = getattr(cls, "by_name", True)
            said._has_role = True

    @property
    def backend(self) -> Any:
        """The row backend, whichever backend a class names."""
        return self.app.backend

    @property
    def role(self) -> Role:
        return self.app.roles.of(self)

    # -- enqueue ---------------------------------------------------------------------------------------------------

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue one row, in the state it has once this returns. Raises EnqueueRefused if it was not accepted."""
        return self.apply_async(args, kwargs) if originals.delay_is_celerys() else super().delay(*args, **kwargs)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue as `delay` does, without blocking the event loop. If cancelled, the task may have been accepted."""
        return await self.app.beside.enqueue(lambda _: self.delay(*args, **kwargs), {})

    def using(self, **options: Unpack[CallOptions]) -> Call[P]:
        """Return the task with options, to be called with typed arguments: `task.using(priority=50).delay(7)`."""
        return Call(self, options)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Enqueued:
        """Enqueue with Celery's spelling and options, and those of `CallOptions`.

        A call without options, or with a `session` alone, is inserted directly if nothing listens to Celery's own
        steps (signals, routes, replaced methods). Celery refuses arguments that are not a list.
        """
        is_call = (args is None or isinstance(args, tuple | list)) and (kwargs is None or isinstance(kwargs, dict))
        if is_call and (not options or options.keys() == {"session"}) and self._is_heard_by_nobody():
            bound = transaction_of(self.name, options["session"], None) if options else None
            result = self.app.enqueue(self.name, args or (), kwargs or {}, bound)
            result.ignored = self.ignore_result
            return result
        if is_call and diverts_calls(self.app.conf) and self.app.conf.task_always_eager:
            self._refuse_misfit(args or (), kwargs or {})
        return super().apply_async(args, kwargs, **(options_of_call(self.name, options) if options else {}))

    def _refuse_misfit(self, args: Any, kwargs: Any) -> None:
        """Raise BadArguments for arguments that its handler does not take, as intake does for what becomes a row."""
        _, signature = self.app.role_declared(self.name)
        if not signature.lenient:
            signature.bind(tuple(args), kwargs)

    async def aapply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Enqueued:
        """Enqueue as `apply_async` does, without blocking the event loop, to which `session` may belong."""
        return await self.app.beside.enqueue(lambda said: self.apply_async(args, kwargs, **said), options)

    def _get_exec_options(self) -> dict[str, Any]:
        """Return Celery's options with the role's priority; Celery has deprecated the attribute `priority`."""
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
            and type(self).AsyncResult is CeleryTask.AsyncResult
            and (self.soft_time_limit or 0) <= (self.time_limit or math.inf)
            and type(self).shadow_name is CeleryTask.shadow_name
            and self.app.sends_straight()
            and not diverts_calls(self.app.conf)
            and not ((self.role_options or {}).get("queues") and self.app.conf.task_routes)
        )

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Run Celery's eager call; its result can be awaited like any other."""
        result = super().apply(*args, **kwargs)
        if type(result) is EagerResult:
            result.__class__ = EagerRowResult
        return result

    def bulk(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], **options: Unpack[BulkOptions]
    ) -> list[Enqueued]:
        """Enqueue many rows in few statements; each call is a tuple of positional or a mapping of keyword arguments."""
        return self.app.enqueue_many(self.name, calls, **options)

    async def abulk(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]], **options: Unpack[BulkOptions]
    ) -> list[Enqueued]:
        """Enqueue as `bulk` does, without blocking the event loop, to which `session` may belong."""
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
        """Return the current run, also in a process that the handler has forked."""
        return running.inherited() or self.run_under_way

    @overridable_property
    def session(self) -> Any:
        """A `Session`; writes made here commit in one transaction with the task's outcome, or not at all.

        In an `async def` handler an `AsyncSession`: `await self.session.execute(…)`.
        """
        run = self.run_under_way
        return awaited_sessions.session(run) if run.is_async else run.session

    def early_commit(self) -> Any:
        """Open a session that commits at the block's end while the task goes on: for data others have to see meanwhile.

        `with self.early_commit() as session:`, or `async with` in an `async def` handler. The commit is fenced like
        the outcome: if another run has the row by then, it writes nothing and raises LeaseLost.
        """
        run = self.run_under_way
        return awaited_sessions.early_commit(run) if run.is_async else run.early_commit()

    @overridable_property
    def idempotency_key(self) -> str:
        """The same key for every attempt of this task, to be given to outside systems."""
        return self._read_run.task.task_id

    @overridable_property
    def attempt(self) -> int:
        """The number of the attempt in this round, from 1."""
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
        """A logger whose lines are stored with the task and shown on its page; outside a run, a plain logger."""
        run = running.current()
        return logger if run is None else run.log

    def progress(self, value: Any) -> Any:
        """Store progress (JSON) and restart the time limit. Raises BadValue; LeaseLost if another run has the row.

        In an `async def` handler: `await self.progress(…)`.
        """
        run = self.run_under_way
        return coroutines.in_thread(lambda: run.progress(value)) if coroutines.loop_runs_here() else run.progress(value)

    def raise_if_cancelled(self) -> Any:
        """Raise TaskCancelled or LeaseLost if the task is to stop. In an `async def` handler it is awaited."""
        ask = self.run_under_way.raise_if_cancelled
        return coroutines.in_thread(ask) if coroutines.loop_runs_here() else ask()

    def snooze(self, seconds: float, why: str = "") -> Snooze:
        """Return an error to raise, `raise self.snooze(60, "too early")`: retries later, uses no attempt.

        Raises BadValue.
        """
        if not is_duration(seconds):
            raise BadValue(f"{self.name}: snooze({seconds!r:.100}): give seconds, at most 100 years")
        return Snooze(seconds, why)

    def on_replace(self, sig: Any) -> Any:
        """Replace the task as Celery does: the next task published with its id takes its place, unless refused."""
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
        """Retry as Celery does. Outside eager runs the next attempt is `scheduled_for` in SQL, up to the row's bound.

        `queue`: one of the role's. `throw=False`: the handler goes on and its return ends this task; the retry is a new
        task. Raises BadValue for options of a call, as a retry keeps its call's; BadArguments for a queue that the role
        does not list.
        """
        run = running.current()
        if run is not None and kwargs.get("queue") is not None and not self.request.is_eager:
            other_queue(self.role, kwargs["queue"])
        others = sorted(name for name, value in kwargs.items() if name not in RETRY_OPTIONS and value is not None)
        if run is not None and not self.request.is_eager and others:
            raise BadValue(
                f"{self.name}: retry({others[0]}=…): a retry is the same task again, with the options of its call; it "
                "takes args, kwargs, exc, throw, countdown, eta, max_retries and queue"
            )
        if run is not None and run.task.max_retries is not None and not self.request.is_eager:
            kwargs.setdefault("max_retries", run.task.max_retries)
        if run is None or (args[3] if len(args) > 3 else kwargs.get("throw", True)):
            return super().retry(*args, **kwargs)
        run.is_retried_apart = True
        try:
            return super().retry(*args, **kwargs)
        finally:
            run.is_retried_apart = False


class Call(Generic[P]):
    """A task with options, waiting for its arguments."""

    def __init__(self, task: Task[P, Any], options: CallOptions) -> None:
        self.task = task
        self._options = options

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        return self.task.apply_async(args, kwargs, **self._options)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue as `delay` does, without blocking the event loop, to which `session` may belong."""
        return await self.task.aapply_async(args, kwargs, **self._options)


def with_rows(base: Any) -> type[Task[..., Any]]:
    """Return a subclass of a user's base class of tasks whose calls insert rows."""
    base = symbol_by_name(base)
    if base is CeleryTask:
        return Task
    if issubclass(base, Task):
        return base
    return type(base.__name__, (base, Task), {"__module__": base.__module__, "abstract": True})


if older.IS_OLDER:
    Task.__trace__ = older.Tracer()
