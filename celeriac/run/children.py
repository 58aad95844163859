"""Contain a handler: an exception that leaves it belongs to its run; a process that it forks does not.

A forked process is a caller of its own: it calls tasks like any other program, with its own connections. It does not
return into the engine: where its copy of the handler ends, the process ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any

from celeriac.errors import HandlerEnded
from celeriac.run import outlets
from celeriac.run import run as running
from celeriac.run.outside import is_from_outside, is_the_workers
from celeriac.run.run import Run
from celeriac.store import forks

#: Signals that Celery's worker or its pool handles.
SIGNALS = ("SIGTERM", "SIGQUIT", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")

#: Signals that Celery's pool has its processes ignore; SIGTERM only if `REMAP_SIGTERM=SIGQUIT` is set.
IGNORED = ("SIGINT", "SIGTERM")

_mask = threading.local()
_is_registered = False

#: In a process of a pool, the signals that the pool has it ignore.
_pools: frozenset[signal.Signals] = frozenset()


def contained(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler: a forked process that returns from it or raises ends here.

    An exception of the handler is kept with its run before Celery turns it into something that can be pickled.
    Exceptions that are no `Exception` (`asyncio.CancelledError`, `GeneratorExit`, a `SystemExit` of its own) become
    `HandlerEnded`: they are this attempt's error, and end neither the ticket nor the process.
    """

    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        under_way, generation = running.UNDER_WAY.get(), forks.generation
        if under_way is None or under_way.generation != generation:
            return handler(*args, **kwargs)
        try:
            result = handler(*args, **kwargs)
        except BaseException as error:
            leave_out(error)
            raised(under_way, error)
            raise
        if generation != forks.generation:
            end(None)
        return result

    return run


#: The code of every function that `contained` makes.
_CONTAINING: CodeType = contained(str).__code__


def inside(handler: Any) -> Any:
    """Return the handler within a function that contains it, for a caller that does so itself; any other as it is."""
    return handler.__wrapped__ if getattr(handler, "__code__", None) is _CONTAINING else handler


def raised(run: Run, error: BaseException) -> None:
    """Keep with its run what a handler has raised. A process that the handler has forked ends here.

    Raises HandlerEnded for what is no `Exception` and does not come from outside the handler.
    """
    if run.generation != forks.generation:
        end(error)
    run.raised = error
    if not isinstance(error, Exception) and not is_from_outside(error):
        raise HandlerEnded(f"{type(error).__name__}: {error}") from error


def leave_out(error: BaseException) -> None:
    """Leave the frame that has caught this error out of its traceback, unless it is the only one: nobody needs to read
    the engine's, and Celery takes 0.1 ms to write each down.
    """
    if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
        error.__traceback__ = error.__traceback__.tb_next


def end(error: BaseException | None) -> None:
    """End the process with the status that Python would give it, without the exit hooks, which are the parent's."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    _flush()
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    outlets.finish()


def hear_signals_as_programs(*, in_pool: bool) -> None:
    """Make processes that this one forks handle signals as any program does, instead of by the worker's handlers.

    A signal that comes before the child is ready is held back: the worker's handler would take it. `in_pool`: this is a
    process of a pool, which ignores what its parent hears for it (Ctrl-C); its children do not.
    """
    global _is_registered, _pools
    if in_pool:
        _pools = frozenset(number for number in map(_number, IGNORED) if signal.getsignal(number) is signal.SIG_IGN)
    if not _is_registered:
        _is_registered = True  # also true in forked processes: they inherit the hooks
        os.register_at_fork(before=_hold, after_in_parent=_let, after_in_child=_hear)


def _hold() -> None:
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, map(_number, SIGNALS))


def _let() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _hear() -> None:
    """Let the child hear signals as a program does.

    INVARIANT: a Ctrl-C that has come meanwhile ends it. KeyboardInterrupt may not be raised here: Python drops what a
    hook of a fork raises, and the child would have heard nothing.
    """
    global _pools
    interrupts = _is_the_parents(signal.SIGINT) or signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for number in map(_number, SIGNALS):
        if _is_the_parents(number) or (number == signal.SIGINT and interrupts):
            signal.signal(number, signal.SIG_DFL)
    _pools = frozenset()
    _let()
    if interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_the_parents(number: signal.Signals) -> bool:
    """Return whether a signal's handling is the worker's or its pool's, and none that the application has set."""
    handler = signal.getsignal(number)
    return is_the_workers(handler) or (handler is signal.SIG_IGN and number in _pools)


def _number(name: str) -> signal.Signals:
    return signal.Signals[name]
