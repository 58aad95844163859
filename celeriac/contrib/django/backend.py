"""A backend of Django's tasks framework: functions with `@task` are roles of the project's app, and calls are rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial, update_wrapper
from typing import Any

from celery import current_task
from celery.result import EagerResult
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from celeriac.app import Celeriac
from celeriac.contrib.django import framework
from celeriac.contrib.django.databases import celeriac_app
from celeriac.contrib.django.framework import InvalidTask, TaskResultStatus, signals
from celeriac.contrib.django.task import DjangoTask
from celeriac.insights.tasks import attempts, tasks
from celeriac.store import states
from celeriac.store.encoding import revived
from celeriac.store.ids import began, fresh_id

#: Django's status for each status of a row.
STATUS = {
    states.PENDING: TaskResultStatus.READY,
    states.CLAIMED: TaskResultStatus.READY,
    states.RUNNING: TaskResultStatus.RUNNING,
    states.COMPLETED: TaskResultStatus.SUCCESSFUL,
    states.FAILED: TaskResultStatus.FAILED,
    states.CANCELLED: TaskResultStatus.FAILED,
}  # fmt: skip


#: Declared tasks, by the paths of their functions.
_declared: dict[str, Any] = {}


class DeclaredTask(framework.Task):
    """The task that `@task` makes, which is declared to the project's app."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.get_backend().declare(self)


class Backend(framework.BaseTaskBackend):
    """`TASKS = {"default": {"BACKEND": "celeriac.contrib.django.Backend"}}`.

    `OPTIONS` are options of `@app.task`, for all tasks of the backend: `{"timeout": 60, "keep": timedelta(days=7)}`.
    """

    task_class = DeclaredTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> Celeriac:
        """The project's app. Raises ImproperlyConfigured if it is not a Celeriac app."""
        app = celeriac_app()
        if app is None:
            raise ImproperlyConfigured(
                f"TASKS[{self.alias!r}] is Celeriac's, and the project's app is not: make it with Celeriac(…) in "
                "project/celery.py and import it in project/__init__.py, or name it in CELERIAC_APP"
            )
        return app

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        try:
            self.app  # noqa: B018
        except ImproperlyConfigured as error:
            return [checks.Error(str(error), id="celeriac.E002")]
        return []

    # -- declare -------------------------------------------------------------------------------------------------------

    def declare(self, task: Any) -> None:
        """Declare a role named by the function's path.

        Its further queues are those of QUEUES, for `using(queue_name=…)`.
        """
        if task.module_path in _declared:
            return
        _declared[task.module_path] = task
        priority = self.app.roles.priorities.turned(task.priority)  # in Django the highest goes first
        options = {"base": RunTask, "priority": priority, "django_task": task, **self.options}
        queues = (task.queue_name, *sorted({*self.queues} - {task.queue_name}))
        self.app.task(name=task.module_path, queues=queues, **options)(_handler(task))

    # -- enqueue -------------------------------------------------------------------------------------------------------

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Enqueue the task; within `atomic()` its row belongs to that transaction.

        Raises InvalidTask, EnqueueRefused.
        """
        self.validate_task(task)
        declared = self._task_of(task)
        args, kwargs = framework.normalize_json(list(args)), framework.normalize_json(dict(kwargs))
        if self.app.conf.task_always_eager:
            done = declared.apply(args, kwargs, throw=False, task_id=fresh_id())
            result = _of_eager(partial(_result, task, done.id, args, kwargs, self.alias), done)
        else:
            enqueued = declared.apply_async(args, kwargs, **_options(task, declared))
            result = _result(task, enqueued.id, args, kwargs, self.alias, TaskResultStatus.READY)
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def _task_of(self, task: Any) -> Any:
        """Return the app's task, checked to have this queue. Raises InvalidTask."""
        declared = _declared.get(task.module_path)
        if declared is None:
            raise InvalidTask(f"No worker knows {task.module_path}: declare it by @task(backend={self.alias!r}).")
        ours = self.app.tasks[declared.module_path]
        if task.queue_name not in ours.role.queues:
            raise InvalidTask(
                f"No worker runs {task.module_path} from the queue {task.queue_name!r}: name it in "
                f"TASKS[{self.alias!r}]['QUEUES']."
            )
        return ours

    # -- results -------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: Any) -> Any:
        """Return the result.

        Raises TaskResultDoesNotExist, also for a pruned task, and for one that is not Django's.
        """
        with self._reading() as connection:
            row = tasks.find(connection, f"task_id={result_id}")
            task = None if row is None else getattr(self.app.tasks.get(row["role"]), "django_task", None)
            if row is None or task is None:
                raise framework.TaskResultDoesNotExist(result_id)
            ended = attempts.attempts(tasks.events(connection, row["id"]))[::-1]
        return _of_row(task, row, [attempt.by for attempt in ended if attempt.by], self.alias)

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """Yield a connection for reading: the call's open transaction, which sees tasks it has enqueued, or another."""
        atomic = self.app.ambient()
        if atomic is not None and atomic.connection is not None:
            yield atomic.connection
            return
        with self.app.database.reading() as connection:
            yield connection


def _options(task: Any, declared: Any) -> dict[str, Any]:
    """Return the call's options that differ from the declared ones; without any, a call is inserted directly."""
    turned = declared.app.roles.priorities.turned
    options = {} if task.priority == declared.role.priority else {"priority": turned(task.priority)}
    options |= {} if task.queue_name == declared.role.queue else {"queue": task.queue_name}
    if task.run_after is None:
        return options
    return options | {
        "eta": task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
    }


# -- run ---------------------------------------------------------------------------------------------------------------


class RunTask(DjangoTask):
    """The app's task for a function declared with Django's `@task`; it sends Django's signals around each run."""

    abstract = True
    django_task: Any = None
    priority_is_said = True  # in Django the highest goes first

    def result(self, status: Any, **ended: Any) -> Any:
        """Return Django's result of the run under way, built from its request."""
        request, backend = self.request, self.django_task.get_backend()
        if request.retries and not request.is_eager:
            return backend.get_result(request.id)
        now = timezone.now()
        return _result(
            self.django_task, request.id, request.args, request.kwargs, self.django_task.backend, status,
            started_at=now, last_attempted_at=now, worker_ids=[self.app.process_name], **ended,
        )  # fmt: skip

    def before_start(self, *_: Any) -> None:
        self.request.of_django = result = self.result(TaskResultStatus.RUNNING)
        self._send(signals.task_started, result)

    def on_success(self, retval: Any, *_: Any) -> None:
        self._finished(TaskResultStatus.SUCCESSFUL, _return_value=retval)

    def on_failure(self, exc: BaseException, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:  # noqa: ARG002
        self._finished(TaskResultStatus.FAILED, errors=[framework.TaskError(
            exception_class_path=_path(type(exc)), traceback=str(getattr(einfo, "traceback", einfo))
        )])  # fmt: skip

    def _finished(self, status: Any, **fields: Any) -> None:
        result = getattr(self.request, "of_django", None) or self.result(status)
        self._send(signals.task_finished, _with(result, status=status, finished_at=timezone.now(), **fields))

    def _send(self, signal: Any, result: Any) -> None:
        signal.send(type(self.django_task.get_backend()), task_result=result)


def _handler(task: Any) -> Any:
    """Return a handler that runs the task's function, with its context if it takes one.

    The return value must be JSON.
    """
    run: Any
    if inspect.iscoroutinefunction(task.func):

        async def run(*args: Any, **kwargs: Any) -> Any:
            return framework.normalize_json(await task.func(*_context(task), *args, **kwargs))
    else:

        def run(*args: Any, **kwargs: Any) -> Any:
            return framework.normalize_json(task.func(*_context(task), *args, **kwargs))

    parameters = list(inspect.signature(task.func).parameters.values())[int(task.takes_context) :]
    update_wrapper(run, task.func)
    run.__signature__ = inspect.Signature(parameters)
    return run


def _context(task: Any) -> tuple[Any, ...]:
    return (framework.TaskContext(task_result=current_task.request.of_django),) if task.takes_context else ()


# -- from rows and runs to Django's results ----------------------------------------------------------------------------


def _of_row(task: Any, row: Mapping[str, Any], workers: list[str], alias: str) -> Any:
    status = STATUS[row["status"]]
    if row["status"] in (states.RUNNING, states.COMPLETED):
        workers = [*workers, row["worker_id"]]
    is_planned = row["scheduled_for"] and row["scheduled_for"] != row["created_at"] and not row["retry_count"]
    priority = max(framework.LOWEST, min(framework.HIGHEST, row["priority"]))  # operators may exceed Django's bounds
    changes: dict[str, Any] = {} if priority == task.priority else {"priority": priority}
    changes |= {"queue_name": row["queue"]} if row["queue"] else {}
    changes |= {"run_after": _djangos(row["scheduled_for"])} if is_planned else {}
    result = _result(
        task.using(**changes) if changes else task, row["task_id"], row["args"], row["kwargs"], alias, status,
        started_at=row["started_at"], last_attempted_at=row["started_at"], finished_at=row["completed_at"],
        errors=[_error(row)] if status == TaskResultStatus.FAILED else [], worker_ids=workers,
    )  # fmt: skip
    return _with(result, _return_value=revived(row["result"])) if status == TaskResultStatus.SUCCESSFUL else result


def _error(row: Mapping[str, Any]) -> Any:
    """Return the error of the last attempt. Without an exception, the reason stands in place of its traceback."""
    stored = row["result"] if isinstance(row["result"], dict) and "exc_type" in row["result"] else {}
    usual = (
        "celery.exceptions.TaskRevokedError" if row["status"] == states.CANCELLED else "celeriac.errors.CeleriacError"
    )
    path = f"{stored.get('exc_module') or 'builtins'}.{stored['exc_type']}" if stored else usual
    traceback = stored.get("traceback") or row["error_message"] or ""
    return framework.TaskError(exception_class_path=path, traceback=traceback)


def _of_eager(made: Any, done: EagerResult) -> Any:
    """Return the result of a call that has run already (`task_always_eager`)."""
    now = timezone.now()
    times = {"started_at": now, "last_attempted_at": now, "finished_at": now}
    if done.successful():
        return _with(made(TaskResultStatus.SUCCESSFUL, **times), _return_value=done.result)
    error = framework.TaskError(exception_class_path=_path(type(done.result)), traceback=str(done.traceback or ""))
    return made(TaskResultStatus.FAILED, errors=[error], **times)


def _result(task: Any, task_id: str, args: Any, kwargs: Any, alias: str, status: Any, **fields: Any) -> Any:
    """Build Django's result. `enqueued_at` is the time in the task's id, so that all readers show the same."""
    usual: dict[str, Any] = dict.fromkeys(("started_at", "last_attempted_at", "finished_at"))
    usual |= {"errors": [], "worker_ids": []} | {name: _djangos(value) for name, value in fields.items()}
    return framework.TaskResult(
        task=task, id=task_id, status=status, enqueued_at=_djangos(began(task_id)), args=list(args or ()),
        kwargs=dict(kwargs or {}), backend=alias, **usual,
    )  # fmt: skip


def _djangos(value: Any) -> Any:
    """A time as Django has it: naive, in the project's zone, where USE_TZ is off. Any other value is returned as is."""
    if settings.USE_TZ or not isinstance(value, datetime) or timezone.is_naive(value):
        return value
    return timezone.make_naive(value, timezone.get_default_timezone())


def _with(result: Any, **fields: Any) -> Any:
    """Set these fields of the result, a frozen dataclass, and return it."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
    return result


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
