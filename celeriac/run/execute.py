"""Execute: one task's handler, with Celery's own outcomes.

Through Celery's tracer, where somebody could tell the difference: a hook is overridden, a signal has receivers, the
task is called in a way of its own, the tracer or the loader is not Celery's, or successes are logged. Else by a direct
call, which costs half; what it raises goes through Celery's error handling all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from celery import signals, states
from celery._state import _task_stack
from celery.app import trace
from celery.app.task import Context
from celery.app.task import Task as CeleryTask
from celery.exceptions import ChordError, Ignore, Reject, Retry, TaskRevokedError
from celery.loaders.base import BaseLoader

from celeriac.canvas import join
from celeriac.errors import CeleriacError, LeaseLost, Snooze, TaskCancelled
from celeriac.run import outcomes
from celeriac.run.run import Run, enter, leave
from celeriac.run.shared import worker_id
from celeriac.store import states as row_states
from celeriac.store.encoding import revived

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: Who hears of a task that succeeds.
SIGNALS = (signals.task_prerun, signals.task_postrun, signals.task_success)

#: What Celery's tracer calls of the app's loader.
LOADERS = ("on_task_init", "on_process_cleanup")

#: What Celery calls around a task that succeeds, or around any.
HOOKS = ("before_start", "on_success", "after_return")


def is_plain(task: Any) -> bool:
    """Whether nobody could tell a direct call of the task from one through Celery's tracer."""
    own_call = trace.task_has_custom(task, "__call__")
    loader = type(task.app.loader)
    return (
        (own_call is None or own_call is CeleryTask)
        and not any(trace.task_has_custom(task, hook) for hook in HOOKS)
        and not any(signal.receivers for signal in SIGNALS)
        and all(getattr(loader, hook) is getattr(BaseLoader, hook) for hook in LOADERS)
        and _is_celerys(trace.build_tracer)
        and not trace.logger.isEnabledFor(trace.logging.INFO)
    )


def _is_celerys(tracer: Any) -> bool:
    """What watches applications (Sentry and its like) puts a tracer of its own in its place."""
    return type(tracer) is FunctionType and tracer.__code__.co_filename == trace.__file__


@dataclass(frozen=True, slots=True)
class Direct:
    """What the direct calls of one ticket share: the task, what `self.request` says of each, where results go."""

    task: Any
    context: Context
    backend: Any
    utc: bool
    keeps: bool


@contextmanager
def directly(app: Celeriac, role: str) -> Iterator[Direct | None]:
    """Celery's stacks for the tasks of one ticket: what `self.request` and `current_task` say. None: trace them."""
    task = app.tasks[role]
    if not is_plain(task):
        yield None
        return
    context = Context()
    _task_stack.push(task)
    task.request_stack.push(context)
    try:
        yield Direct(task, context, app.backend, app.conf.enable_utc, not task.ignore_result)
    finally:
        task.request_stack.pop()
        _task_stack.pop()


def execute(app: Celeriac, run: Run, direct: Direct | None = None) -> None:
    """Runs the handler; its outcome is in `run`. `direct`: for a direct call, of what belongs to no workflow."""
    token = enter(run)
    try:
        if run.canvas:
            ended = _trace_part(app, run)
        elif direct is None:
            ended = _trace(app, run, *_arguments(run))
        else:
            ended = _call(direct, run, *_arguments(run))
    except TaskCancelled:
        run.drop_session()
        run.follow_ups.clear()
        run.outcome = outcomes.cancelled(run.task)
    except LeaseLost as error:
        run.drop_session()
        run.outcome = run.outcome or outcomes.lost(run.task, error)
    else:
        if run.outcome is None:
            _conclude(run, ended)
    finally:
        leave(run, token)


def _arguments(run: Run) -> tuple[Any, Any]:
    return revived(run.task.args), revived(run.task.kwargs)


def _trace_part(app: Celeriac, run: Run) -> Any:
    """A part of a workflow. A body whose members did not all complete fails with Celery's error for that."""
    if "fall_out" in run.canvas:
        return _spread(app, run, **run.canvas["fall_out"])
    barrier, joins = run.canvas.get("awaits"), run.canvas.get("joins")
    if barrier is None:
        return _trace(app, run, *_arguments(run))
    with app.database.reading() as connection:
        given = join.results(connection, barrier, run.canvas.get("shape"), run.canvas.get("places", 0))
    if isinstance(given, join.Missing):
        error = app.backend.exception_to_python(revived(given.error)) if given.error else given.says
        return _fail(app, run, ChordError(f"Dependency {given.task_id} raised {error!r}"))
    run.canvas["parent_id"] = given.last
    args, kwargs = run.task.args, run.task.kwargs
    args, kwargs = join.arguments(args, kwargs, joins, given.results) if joins else (args, kwargs)
    return _trace(app, run, revived(args), revived(kwargs))


def _spread(app: Celeriac, run: Run, task_id: str, status: str, error: str | None) -> None:
    """In the name of a task that ended without its worker: see `celeriac.fall_out`."""
    context = Context(request_of(run, app.conf.enable_utc) | {"id": task_id})
    kind = TaskRevokedError if status == row_states.CANCELLED else CeleriacError
    app.backend.spread(context, kind(error), call_errbacks=status == row_states.FAILED)
    run.outcome = outcomes.replaced(run)


def _fail(app: Celeriac, run: Run, error: ChordError) -> None:
    """Without the handler, but with whatever Celery does about a task that failed."""
    task, context = app.tasks[run.role.name], Context(request_of(run, app.conf.enable_utc))
    context.args, context.kwargs = _arguments(run)
    _task_stack.push(task)
    task.request_stack.push(context)
    try:
        raise error  # Celery wants its traceback
    except ChordError as raised:
        _handle(task, context, states.FAILURE, raised)
    finally:
        task.request_stack.pop()
        _task_stack.pop()


def _trace(app: Celeriac, run: Run, args: Any, kwargs: Any) -> Any:
    """What Celery stores nothing for, if it was that."""
    task, request = app.tasks[run.role.name], request_of(run, app.conf.enable_utc)
    traced = trace.trace_task(
        task, run.task.task_id, args, kwargs, request, app=app, loader=app.loader, hostname=worker_id()
    )
    return getattr(traced.info, "retval", None)


def _call(direct: Direct, run: Run, args: Any, kwargs: Any) -> Any:
    task, context = direct.task, direct.context
    said = request_of(run, direct.utc)
    said["args"], said["kwargs"], said["called_directly"] = args, kwargs, False
    context.__dict__ = said
    try:
        result = task.run(*args, **kwargs)
        direct.backend.store_result(run.task.task_id, result if direct.keeps else None, states.SUCCESS, request=context)
    except (Ignore, Reject) as error:
        return error
    except Retry as error:
        _handle(task, context, states.RETRY, error)
    except Exception as error:
        _handle(task, context, states.FAILURE, error)
        trace.traceback_clear(error)
    return None


def _handle(task: Any, context: Context, state: str, error: Exception) -> None:
    """As Celery does in its tracer, within which a hook that fails is an error of its own."""
    try:
        trace.TraceInfo(state, error).handle_error_state(task, context, call_errbacks=state == states.FAILURE)
    except Exception as another:
        trace.report_internal_error(task, another)


def _conclude(run: Run, error: Any) -> None:
    """Celery stores nothing for Ignore and Reject."""
    run.drop_session()
    if run.replaced and isinstance(error, Ignore):
        run.outcome = outcomes.replaced(run)
    elif isinstance(error, Snooze):
        run.follow_ups.clear()
        run.outcome = outcomes.snoozed(run.task, error.seconds, error.why)
    elif isinstance(error, Ignore):
        run.outcome = outcomes.completed(run, None)
    else:
        run.outcome = outcomes.failed(run, error or RuntimeError("ended without an outcome"))


def request_of(run: Run, utc: bool) -> dict[str, Any]:
    """What Celery's own requests say of a task."""
    task, said = run.task, run.task.headers or {}
    canvas = revived(run.canvas) if run.canvas else {}
    return {
        "id": task.task_id,
        "task": run.role.name,
        "retries": task.retry_count,
        "root_id": said.get("root_id", task.task_id),
        "parent_id": said.get("parent_id"),
        "hostname": worker_id(),
        "is_eager": False,
        "ignore_result": None,  # as its task says
        "correlation_id": task.task_id,
        "timelimit": [run.role.hard_timeout, run.timeout],
        "shadow": said.get("shadow"),
        "argsrepr": said.get("argsrepr"),
        "kwargsrepr": said.get("kwargsrepr"),
        "eta": said.get("eta"),
        "delivery_info": {
            "exchange": "", "routing_key": run.role.queue, "priority": task.priority, "redelivered": task.losses > 0
        },
        "utc": utc,
        **canvas,
    }  # fmt: skip
