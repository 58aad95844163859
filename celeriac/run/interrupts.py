"""Interrupt one of many threads or greenlets of a process: in its handler, or not at all."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from celeriac.run import children
from celeriac.run.coroutines import is_of
from celeriac.run.places import SharedPlace, places
from celeriac.run.run import Run

#: Modules where an exception from outside could leave a lock of the whole process taken for ever: `logging` takes its
#: locks a bytecode before the `try` that frees them. The interrupt is tried again when the thread is elsewhere.
DELICATE = ("logging", "importlib", "_frozen_importlib", "sqlalchemy.pool", "sqlalchemy.util.queue")

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Thread(SharedPlace):
    """A thread in which a handler can be interrupted. CPython raises an interrupt at the thread's next bytecode; during
    a call into C, only once that returns.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.ident = threading.get_ident()
        self.lock = threading.Lock()

    def call(self, run: Run, handler: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the handler. INVARIANT: once this has returned, nothing is raised in this thread by an earlier interrupt.

        CPython raises only at a function's start, after a call and at a loop's end: nothing comes between the handler's
        end and `inside = None`. At that moment one exception may be pending, and `interrupt`, if it has the lock,
        may add one; from there on it adds none. `_forget` waits for the lock and takes back what is pending. If the
        first is raised in there, the outer `except` takes back the second, or that one is raised in its place.
        """
        self.inside = run
        try:
            try:
                return handler(*args, **kwargs)
            finally:
                self.inside = None
                self._forget()
        except BaseException:
            self.inside = None
            self._forget()
            raise

    def interrupt(self, run: Run, error: BaseException) -> bool:
        ident, raised = ctypes.c_ulong(self.ident), ctypes.py_object(_carrying(error))
        with self.lock:
            if self.inside is not run or _is_delicate(self.ident):
                return False
            _raise_in(ident, raised)
        return True

    def _forget(self) -> None:
        with self.lock:
            _raise_in(ctypes.c_ulong(self.ident), None)


def _is_delicate(ident: int) -> bool:
    """Return whether the thread is in a delicate module. An exception would be raised where it is seen now, because it
    waits there for the interpreter's lock or for its call to return.
    """
    frame = sys._current_frames().get(ident)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(DELICATE)


def _carrying(error: BaseException) -> type[BaseException]:
    """Return a subclass whose instances carry this error's arguments:
    CPython takes a class and makes the instance itself.
    """
    kind = type(error)

    def init(self: BaseException) -> None:
        kind.__init__(self, *error.args)

    def reduce(_: BaseException) -> Any:
        return kind, error.args

    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), {**named, "__init__": init, "__reduce__": reduce})


class Greenlet(SharedPlace):
    """A greenlet in which a handler can be interrupted. gevent raises where it waits; one that computes without waiting
    is not interrupted.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        from gevent import getcurrent

        self.greenlet = getcurrent()

    def call(self, run: Run, handler: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.inside = run
        try:
            return handler(*args, **kwargs)
        finally:
            self.inside = None

    def interrupt(self, run: Run, error: BaseException) -> bool:
        from gevent import get_hub

        if self.inside is not run:
            return False
        get_hub().loop.run_callback(self._throw, run, error)
        return True

    def _throw(self, run: Run, error: BaseException) -> None:
        """Throw from the hub: no greenlet runs meanwhile, so this one is still where it was seen."""
        if self.inside is run:
            self.greenlet.throw(error)


def guard(task: Any) -> None:
    """Make the task's handler interruptible, whether it is called directly or by Celery's tracer."""
    handler = children.inside(task.run)

    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        place = places.mine()
        current = place.current if place is not None and place.inside is None else None
        if current is None or current[1].outcome is not None or not is_of(task, current[1].role.name):
            return handler(*args, **kwargs)
        return place.call(current[1], handler, args, kwargs)  # type: ignore[union-attr]

    task.run = run if handler is task.run else children.contained(run)
