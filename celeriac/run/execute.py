"""Execute one task's handler, with Celery's own outcomes.

It runs through Celery's tracer wherever somebody could tell the difference: a hook is overridden, a signal has
receivers, the task has a `__call__` of its own, or the tracer or the loader is not Celery's. Otherwise it is called
directly, which is cheaper: its errors still go through Celery's error handling, and its success is logged in Celery's
words.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from types import FunctionType
from typing import Any, TypeVar

from celery import signals, states
from celery._state import _task_stack
from celery.app import trace
from celery.app.task import Context
from celery.app.task import Task as CeleryTask
from celery.exceptions import ChordError, Ignore, Reject, Retry, TaskRevokedError
from celery.loaders.base import BaseLoader
from celery.utils.saferepr import saferepr
from kombu.exceptions import EncodeError
from kombu.utils.encoding import safe_repr

from celeriac.canvas import join, rests
from celeriac.errors import CeleriacError, HandlerEnded, LeaseLost, Snooze, TaskCancelled
from celeriac.run import children, coroutines, originals, redaction
from celeriac.run.app import Backend, HandlerApp
from celeriac.run.outcomes import described
from celeriac.run.outlets import LINES
from celeriac.run.outside import is_from_outside
from celeriac.run.requests import DirectRequest, Requests, request_of
from celeriac.run.run import UNDER_WAY, Run
from celeriac.run.shared import worker_id
from celeriac.store import forks
from celeriac.store import states as row_states
from celeriac.store.connections import Database
from celeriac.store.encoding import legible, revived
from celeriac.store.failures import log_error

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Signals that Celery sends about a task that succeeds.
SIGNALS = (signals.task_prerun, signals.task_postrun, signals.task_success)

#: Methods of the app's loader that Celery's tracer calls.
LOADERS = ("on_task_init", "on_process_cleanup")

#: Methods of a task that Celery calls around each run, or after a success.
HOOKS = ("before_start", "on_success", "after_return")


def is_plain(task: Any) -> bool:
    """Return whether nobody could tell a direct call of the task from one through Celery's tracer. Sentry and similar
    tools replace that tracer with their own.
    """
    prerun, postrun, success = SIGNALS
    tracer: Any = trace.build_tracer
    kind, loader = task.__class__, task.app.loader.__class__
    judged = kind.__dict__.get(_JUDGED)
    if judged is None or judged[0] is not loader:
        judged = _judge(kind, loader)
    return (
        judged[1]
        and not (prerun.receivers or postrun.receivers or success.receivers)
        and _call_is_celerys()
        and type(tracer) is FunctionType
        and tracer.__code__.co_filename == trace.__file__
    )


_CALL = originals.celerys(CeleryTask, "__call__")


def _call_is_celerys() -> bool:
    """Return whether `Task.__call__` is Celery's; a Celery worker wraps it in a function of its own."""
    call: Any = vars(CeleryTask)["__call__"]
    if call is _CALL:
        return True
    is_protection = type(call) is FunctionType and call.__code__.co_filename == trace.__file__
    return is_protection and _CALL in map(attrgetter("cell_contents"), call.__closure__ or ())


#: The attribute of a task's class that says with which loader it was judged, and the answer. (The class has its app,
#: so that nothing is longer alive for it.)
_JUDGED = "_celeriac_judged"


def _judge(kind: type, loader: type) -> tuple[type, bool]:
    """Note and return whether tasks of this class, with a loader of that one, have no hook and no `__call__` of their
    own. That is asked at the first run, because Celery builds its tracer then.
    """
    judged = (loader, _has_nothing_of_its_own(kind, loader))
    setattr(kind, _JUDGED, judged)
    return judged


def _has_nothing_of_its_own(kind: type, loader: type) -> bool:
    task: Any = object.__new__(kind)
    own_call = trace.task_has_custom(task, "__call__")
    return (
        (own_call is None or own_call is CeleryTask)
        and not any(trace.task_has_custom(task, hook) for hook in HOOKS)
        and all(getattr(loader, hook) is getattr(BaseLoader, hook) for hook in LOADERS)
    )


@dataclass(slots=True)
class Direct:
    """The objects that the direct calls of one ticket share:
    the task, the context of `self.request`, and where results go.
    """

    task: Any
    context: DirectRequest
    backend: Backend
    requests: Requests
    keeps: bool
    logs: bool
    together: bool
    handler: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        self.handler = children.inside(self.task.run)


def logs_successes() -> bool:
    """Return whether Celery's line about a success goes anywhere."""
    return trace.logger.isEnabledFor(logging.INFO)


@contextmanager
def directly(app: HandlerApp, role: str, *, together: bool = False) -> Iterator[Direct | None]:
    """Set up Celery's stacks (`self.request`, `current_task`) for one ticket's direct calls; None if the tasks have to
    be traced. `together`: log lines are written in batches.
    """
    task = app.tasks[role]
    if not is_plain(task):
        yield None
        return
    context = DirectRequest()
    _task_stack.push(task)
    task.request_stack.push(context)
    try:
        keeps, logs = not task.ignore_result, trace.logger.isEnabledFor(logging.INFO)
        yield Direct(task, context, app.backend, Requests(app), keeps, logs, together)
    finally:
        task.request_stack.pop()
        _task_stack.pop()


def execute(app: HandlerApp, run: Run, direct: Direct | None = None) -> None:
    """Run the handler and leave its outcome in `run`.
    `direct`: call it directly, unless the task belongs to a workflow.
    """
    token = UNDER_WAY.set(run)
    if run.role.sensitive:
        run.secret = redaction.of_role(app.roles, run.role)
    try:
        ended = _attempt(app, run, direct)
        if run.generation != forks.generation:
            children.end(None)
        if run.outcome is None:
            _conclude(app.backend, run, ended)
    except BaseException as error:
        _end_attempt(app.backend, run, error)
    finally:
        if run.logged is not None:
            coroutines.aside(run.logged.end)
        UNDER_WAY.reset(token)
        if run.opened is not None:  # nothing of its session stays open, whoever used it
            run.drop_session()
            if run.logged is not None:
                run.logged.end()


def _end_attempt(backend: Backend, run: Run, error: BaseException) -> None:
    """End an attempt that this exception has left; raise it again if it came from outside the handler. A process that a
    hook has forked ends here. An interrupt may come at any time, also while another error is judged.
    """
    if run.generation != forks.generation:
        children.end(error)
    try:
        if isinstance(error, TaskCancelled | LeaseLost):
            raise error
        redaction.veil(run, error)
        if is_from_outside(error):
            raise error
        _end_for(backend, run, error)
    except TaskCancelled:
        run.cancel()
    except LeaseLost as lost:
        if run.outcome is None:
            run.lose(lost)


def _end_for(backend: Backend, run: Run, error: BaseException) -> None:
    """End the attempt, if it has not ended, with an exception that a hook, a signal's receiver or an error's own method
    raised. A success with an open session has not ended: without the session's writes it would be no success.
    """
    outcome = run.outcome
    if outcome is not None and outcome.status == row_states.COMPLETED and not run.settled and run.opened is not None:
        run.reopen()
    lines, task, role = _traceback(run, error), run.task.id, run.role.name
    if run.outcome is not None:
        logger.error("Task %s of %s has ended, and a hook or a receiver of a signal raised:\n%s", task, role, lines)
        return
    logger.error("The attempt of task %s of %s was broken off before it had an outcome:\n%s", task, role, lines)
    run.raised = run.raised or error
    try:
        ended = error if isinstance(error, Exception) else HandlerEnded(str(described(error)))
        backend.store_result(run.task.task_id, ended, states.FAILURE, traceback=lines)
    except BaseException as another:
        if is_from_outside(another):
            raise
        run.fail(error)


def _traceback(run: Run, error: BaseException) -> str:
    """Return the error's traceback without the secrets of its call; its own methods may raise, too."""
    try:
        return run.without_secrets("".join(traceback.format_exception(error)).rstrip())
    except BaseException as unreadable:
        if is_from_outside(unreadable):
            raise
        return str(described(error))


def _attempt(app: HandlerApp, run: Run, direct: Direct | None) -> Any:
    """Run one attempt. A task whose arguments cannot be read fails without its handler; the ticket's other tasks
    run.
    """
    if run.task.headers is not None and "fall_out" in run.canvas:
        return _spread(app, run, **run.canvas["fall_out"])
    task = run.task
    try:
        if task.headers is None:
            args, kwargs = revived(task.args), revived(task.kwargs) if task.kwargs else {}
        else:
            args, kwargs = _arguments(app, run)
        if direct is not None and (task.headers is None or not run.canvas):
            request = direct.requests.fill(direct.context, run, args, kwargs)
        else:
            request, direct = request_of(app, run), None
    except (TaskCancelled, LeaseLost):
        raise
    except Exception as error:
        return _fail(app, run, error)
    return _trace(app, run, args, kwargs, request) if direct is None else _call(direct, run, request)


def _arguments(app: HandlerApp, run: Run) -> tuple[Any, Any]:
    """Return the arguments; a chord's body gets its members' results in them.

    Raises ChordError, LeaseLost, or whatever reading them raises.
    """
    args, kwargs = revived(run.task.args), revived(run.task.kwargs)
    if rests.is_used_up(run.canvas.get("chain")):
        _continue_chain(app.database, run)
    if "awaits" not in run.canvas:
        return args, kwargs
    results, joins = _members(app.database, app.backend, run), run.canvas.get("joins")
    return run.joined(*join.arguments(args, kwargs, joins, results)) if joins else (args, kwargs)


def _continue_chain(database: Database, run: Run) -> None:
    """Read the links that are to come behind those that the task's row carries.

    If they are gone, the task does its own work all the same: the link that is not there is what fails after it.
    """

    def read() -> list[Any]:
        with database.reading() as connection:
            return rests.continued(connection, run.canvas["chain"])

    with suppress(rests.LinksGone):
        run.canvas["chain"] = coroutines.patiently(read, "read the links to come")


def _members(database: Database, backend: Backend, run: Run) -> list[Any]:
    """Return the members' results. Raises ChordError if not all of them completed: another attempt would not help."""

    def read() -> join.Joined | join.Missing:
        with database.reading() as connection:
            return join.results(connection, run.canvas["awaits"], run.canvas.get("shape"), run.canvas.get("places", 0))

    joined = coroutines.patiently(read, "read the members' results")
    if isinstance(joined, join.Missing):
        run.is_hopeless = True
        failed = (
            f"Dependency {joined.task_id} raised {_error_of(backend, joined)!r}" if joined.task_id else joined.message
        )
        raise ChordError(failed)
    run.canvas["parent_id"] = joined.last
    try:
        return list(revived(joined.results))
    except Exception as error:
        raise ChordError(f"the results of its members cannot be read: {error!r}") from error


def _error_of(backend: Backend, member: join.Missing) -> Any:
    """Return the exception the member failed with, or its text if the exception cannot be read."""
    try:
        return backend.exception_to_python(revived(member.error)) if member.error else member.message
    except Exception:
        return member.message


def _spread(app: HandlerApp, run: Run, task_id: str, status: str, error: str | None) -> None:
    """Release the successors, in its workflow, of a task that ended without a worker: see `celeriac.fall_out`."""
    context = Context(request_of(app, run, legible) | {"id": task_id})
    kind = TaskRevokedError if status == row_states.CANCELLED else CeleriacError

    def spread() -> None:
        run.follow_ups = []
        run.tombstones.clear()
        app.backend.spread(run, context, kind(error), call_errbacks=status == row_states.FAILED)

    try:
        coroutines.patiently(spread, "tell who waits for a task")
    except (TaskCancelled, LeaseLost):
        raise
    except Exception as broken:
        log_error(logger, broken, "Who waits for task %s could not be told that it is over", task_id)
        run.fail_in_spreading(broken)
    else:
        run.give_way()


def _fail(app: HandlerApp, run: Run, error: Exception) -> None:
    """Fail the task without its handler, and do all that Celery does about a failed task."""
    task, context = app.tasks[run.role.name], Context(request_of(app, run, legible))
    context.args, context.kwargs = legible(run.task.args), legible(run.task.kwargs)
    _task_stack.push(task)
    task.request_stack.push(context)
    try:
        raise error  # Celery needs a traceback
    except Exception as raised:
        _handle(task, context, states.FAILURE, raised)
    finally:
        task.request_stack.pop()
        _task_stack.pop()


def _trace(app: HandlerApp, run: Run, args: Any, kwargs: Any, request: dict[str, Any]) -> Any:
    """Run it through Celery's tracer; return the Ignore or Reject it raised, for which Celery stores no result."""
    task = app.tasks[run.role.name]
    traced = trace.trace_task(
        task, run.task.task_id, args, kwargs, request, app=app, loader=app.loader, hostname=worker_id()
    )
    return getattr(traced.info, "retval", None)


def _call(direct: Direct, run: Run, request: dict[str, Any]) -> Any:
    task, context = direct.task, direct.context
    began = time.monotonic() if direct.logs else 0.0
    try:
        try:
            result = direct.handler(*request["args"], **request["kwargs"])
        except BaseException as error:
            children.leave_out(error)
            if direct.handler is not task.run:  # which would contain it
                children.raised(run, error)
            raise
        if run.generation != forks.generation:
            children.end(None)
        if result is not None and isinstance(result, coroutines.UNFINISHED):
            raise EncodeError(coroutines.unfinished(task.name, result))
        keeps = direct.keeps if request["ignore_result"] is None else not request["ignore_result"]
        direct.backend.succeed(run, result if keeps else None)
        if direct.logs:
            _log_success(task, request, result, time.monotonic() - began, together=direct.together)
    except (Ignore, Reject) as error:
        return error
    except Retry as error:
        _handle(task, context, states.RETRY, error)
    except Exception as error:
        if error is not run.raised:
            children.leave_out(error)
        _handle(task, context, states.FAILURE, error)
        trace.traceback_clear(error)
    return None


def _log_success(task: Any, request: dict[str, Any], result: Any, seconds: float, *, together: bool) -> None:
    """Log Celery's own line about a success."""
    if together and trace.LOG_SUCCESS == _LOG_SUCCESS:
        shown = repr(result) if result is None or type(result) is int else saferepr(result, task.resultrepr_maxsize)
        LINES.add(f"Task {request.get('shadow') or task.name}[{request['id']}] succeeded in {seconds}s: {shown}")
        return
    args, kwargs = request.get("argsrepr"), request.get("kwargsrepr")
    trace.info(trace.LOG_SUCCESS, {
        "id": request["id"], "name": request.get("shadow") or task.name, "runtime": seconds,
        "return_value": saferepr(result, task.resultrepr_maxsize), "args": args or safe_repr(request["args"]),
        "kwargs": kwargs or safe_repr(request["kwargs"]),
    })  # fmt: skip


#: Celery's line about a success, used where lines are written in batches; an application may configure another.
_LOG_SUCCESS = "Task %(name)s[%(id)s] succeeded in %(runtime)ss: %(return_value)s"


def _handle(task: Any, context: Context, state: str, error: Exception) -> None:
    """Handle the error as Celery's tracer does, where a hook that fails is reported as an internal error."""
    try:
        trace.TraceInfo(state, error).handle_error_state(task, context, call_errbacks=state == states.FAILURE)
    except Exception as another:
        trace.report_internal_error(task, another)


def _conclude(backend: Backend, run: Run, error: Any) -> None:
    """Set the outcome of a run for which Celery stored none: it stores nothing for Ignore and Reject."""
    if run.replaced and isinstance(error, Ignore):
        run.give_way()
    elif isinstance(error, Snooze):
        run.snooze(error.seconds, error.why)
    elif isinstance(error, Ignore):
        run.ignore()
    elif isinstance(error, Reject) and error.requeue:
        run.requeue(error)
    else:
        error = error or RuntimeError("ended without an outcome")
        backend.store_result(run.task.task_id, error, states.FAILURE)
