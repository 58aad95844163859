"""Recognise exceptions that are not a handler's own: its process is to end, or somebody has interrupted the attempt."""

from __future__ import annotations

import signal
import threading

from billiard.common import terminate_handler_fired

from celeriac.errors import LeaseLost, TaskCancelled

try:
    from greenlet import GreenletExit as GreenletExit
    from greenlet import getcurrent as getcurrent
    from greenlet import greenlet as greenlet
except ImportError:  # without the extra `asyncio` there is no asyncio pool

    class greenlet:  # type: ignore[no-redef] # noqa: N801
        """A stand-in that has no instances."""

    class GreenletExit(BaseException):  # type: ignore[no-redef]
        """A stand-in that nobody raises."""

    def getcurrent() -> object:
        return None


#: Packages whose signal handlers are the worker's.
WORKERS = ("billiard", "celery", "celeriac")


def is_from_outside(error: BaseException) -> bool:
    """Return whether the error came from outside the handler: the process is to end, or the attempt was interrupted."""
    if isinstance(error, SystemExit):
        return terminate_handler_fired()
    if isinstance(error, KeyboardInterrupt):
        return _may_be_interrupted()
    return isinstance(error, TaskCancelled | LeaseLost) or (
        isinstance(error, GreenletExit | GeneratorExit) and is_dropped()
    )


def is_dropped() -> bool:
    """Return whether the loop of an asyncio pool has dropped what runs in this greenlet."""
    return bool(getattr(getcurrent(), "is_dropped", False))


def _may_be_interrupted() -> bool:
    """Return whether Ctrl-C raises KeyboardInterrupt here: in no thread but the main one, and in no worker."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    return callable(handler) and not is_the_workers(handler)


def is_the_workers(handler: object) -> bool:
    return callable(handler) and str(getattr(handler, "__module__", "")).split(".")[0] in WORKERS
