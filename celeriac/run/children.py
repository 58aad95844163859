"""Around a handler: what leaves it is its run's, and what it forks is not.

A process that a handler forks is a caller of its own, and never its parent. It calls tasks like any other program, with
connections of its own. It does not come back into the engine: where its copy of the handler ends, the process ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

from billiard.common import terminate_handler_fired
from celery.exceptions import WorkerShutdown, WorkerTerminate

from celeriac.errors import HandlerEnded, LeaseLost, TaskCancelled
from celeriac.run import run as running
from celeriac.store import forks

#: Signals that Celery's worker or its pool listens to.
SIGNALS = ("SIGTERM", "SIGQUIT", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")

#: Whose handlers of signals speak for the worker.
WORKERS = ("billiard", "celery", "celeriac")

_mask = threading.local()
_is_registered = False


def contained(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler; a process that it forks, and that returns or raises here, ends here.

    What it raises is noted with its run, before Celery makes something of it that can be pickled. What is no Exception
    (`asyncio.CancelledError`, `GeneratorExit`, a `SystemExit` of its own) comes as `HandlerEnded`: it is this attempt's
    error, and ends neither the ticket nor the process.
    """

    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        under_way = running.current()
        if under_way is None:
            return handler(*args, **kwargs)
        generation = forks.generation
        try:
            result = handler(*args, **kwargs)
        except BaseException as error:
            if generation != forks.generation:
                _end(error)
            under_way.raised = error
            if isinstance(error, Exception) or _is_from_outside(error):
                raise
            raise HandlerEnded(f"{type(error).__name__}: {error}") from error
        if generation != forks.generation:
            _end(None)
        return result

    return run


def _is_from_outside(error: BaseException) -> bool:
    """Whether it is meant to end more than the attempt: the worker stops, or the attempt was interrupted."""
    if isinstance(error, SystemExit):
        return isinstance(error, WorkerShutdown | WorkerTerminate) or terminate_handler_fired()
    return isinstance(error, TaskCancelled | LeaseLost | KeyboardInterrupt) or type(error).__name__ == "GreenletExit"


def _end(error: BaseException | None) -> None:
    """With the status that Python would give it. What Python runs at an exit is the parent's."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code & 0xFF)


def hear_signals_as_programs() -> None:
    """From here on, in each process that this one forks: a signal is the child's, and does what it does to any program.

    One that comes before the child is ready waits: the worker's handler would take it.
    """
    global _is_registered
    if not _is_registered:
        _is_registered = True  # in what is forked as well, which has these hooks, too
        os.register_at_fork(before=_hold, after_in_parent=_let, after_in_child=_hear)


def _hold() -> None:
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, map(_number, SIGNALS))


def _let() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _hear() -> None:
    for number in map(_number, SIGNALS):
        if _is_the_workers(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _let()


def _number(name: str) -> signal.Signals:
    return signal.Signals[name]


def _is_the_workers(handler: object) -> bool:
    return callable(handler) and str(getattr(handler, "__module__", "")).split(".")[0] in WORKERS
