"""Coroutines: run `async def` handlers in every pool, one at a time on an event loop that their thread keeps."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial, wraps
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeVar, cast

from celery._state import _task_stack
from celery.exceptions import SoftTimeLimitExceeded
from sqlalchemy.exc import DBAPIError

from celeriac.errors import ConfigurationError, LeaseLost, TaskCancelled
from celeriac.run import run as running
from celeriac.run import stacks
from celeriac.run.outside import GreenletExit, greenlet, is_dropped
from celeriac.run.outside import getcurrent as getcurrent
from celeriac.run.run import Run
from celeriac.store.failures import is_gone, retry_while_away
from celeriac.store.forks import after_fork

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds after a cancellation until a coroutine that still runs is cancelled again.
AGAIN = 5.0

#: How many threads of a process call Postgres for its coroutines.
THREADS = 8

#: Types of results that only stand for work which the handler has not done yet.
UNFINISHED = (CoroutineType, GeneratorType, AsyncGeneratorType, asyncio.Future)


def refuse_generators(name: str, handler: Callable[..., Any]) -> None:
    """Raise ConfigurationError for a handler that yields: nobody would take what it yields."""
    inner = inspect.unwrap(handler)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigurationError(
            f"role {name!r}: the handler yields, and nobody would take what it yields: return a list, or enqueue a "
            "task for each"
        )


def unfinished(name: str, result: Any) -> str | None:
    """Return why this result means that the handler has not done its work; None for any other result."""
    if not isinstance(result, UNFINISHED):
        return None
    if isinstance(result, CoroutineType | GeneratorType):
        result.close()
    return (
        f"the handler of {name} returned a {type(result).__name__}, whose work nobody has done: declare the handler "
        "with `async def` and await there, or return a value"
    )


def is_coroutine(task: Any) -> bool:
    return bool(getattr(task.run, "is_coroutine", False))


def adapt(task: Any) -> None:
    """Make calls of an `async def` handler's task return what the handler returns, in any thread."""
    run = called(task.run, lambda: task)
    if run is task.run:
        return
    run.is_coroutine = True  # type: ignore[attr-defined]
    task.run = run
    stacks.tell_apart(task.request_stack)
    stacks.tell_apart(_task_stack)


def called(handler: Callable[..., Any], task: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function in place of an `async def` handler, which returns what that does; any other as it is."""
    if not inspect.iscoroutinefunction(inspect.unwrap(handler)):
        return handler

    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _result_of(task(), handler(*args, **kwargs))

    return run


def _result_of(task: Any, awaitable: Any) -> Any:
    """Run the awaitable and return its result. `await task(7)` inside a coroutine gets the awaitable itself; an eager
    call there runs it in another thread.
    """
    if not inspect.isawaitable(awaitable):
        return awaitable
    run = running.current()
    if run is not None and not is_of(task, run.role.name):
        run = None  # another task's handler calls this one
    if run is not None:
        run.is_async = True
    is_awaited = not in_flight() and loop_runs_here() and task.request.called_directly
    return awaitable if is_awaited else result_of(awaitable, run)


def result_of(awaitable: Awaitable[Any], run: Run | None) -> Any:
    """Run the awaitable to its end and return its result, wherever this is called. What stops the run cancels it."""
    if in_flight():
        return _await_here(awaitable, run)
    if loop_runs_here():
        return _in_thread(awaitable, run)
    return _in_native_thread(awaitable, run) if in_greenlets() else _here(awaitable, run)


def is_of(task: Any, role: str) -> bool:
    """Return whether the role is the task's own, or one of its former names."""
    return role == task.name or task.app.tasks.former.get(role) == task.name


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def as_coroutine(awaitable: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    return awaitable if inspect.iscoroutine(awaitable) else _awaited(awaitable)


def loop_runs_here() -> bool:
    return asyncio._get_running_loop() is not None


# -- how a coroutine is stopped ----------------------------------------------------------------------------------------


#: Reasons to stop a coroutine, from the weakest; any other is stronger. A weaker one does not replace a stronger one.
REASONS: tuple[type[BaseException], ...] = (SoftTimeLimitExceeded, TaskCancelled)


def _strength(error: BaseException) -> int:
    return next((n for n, kind in enumerate(REASONS) if isinstance(error, kind)), len(REASONS))


class Awaited:
    """A handler's coroutine under way. Any thread may stop it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self.loop = loop
        self.task = task
        self.asked = 0.0

    def stop(self, run: Run, error: BaseException) -> bool:
        """Cancel the coroutine; return whether it still runs after an earlier cancel for the same reason."""
        if run.stopping is not None and _strength(error) < _strength(run.stopping):
            error = run.stopping
        again = type(run.stopping) is type(error)
        if again and time.monotonic() - self.asked < AGAIN:
            return False
        run.stopping, self.asked = error, time.monotonic()
        if again:
            logger.warning("Task %s of %s goes on although it was cancelled: %s", run.task.id, run.role.name, error)
        with suppress(RuntimeError):  # the loop is closed: the coroutine has ended
            self.loop.call_soon_threadsafe(self.task.cancel)
        return again


def why_cancelled(run: Run | None, error: asyncio.CancelledError) -> BaseException:
    """Return the error behind a CancelledError that left a handler: the reason why the worker cancelled it, or the
    error itself.

    Outside a run it is turned into another error, because a caller's own loop would take a CancelledError for a cancel
    of the caller.
    """
    why = "the handler's coroutine was cancelled, and not by the worker"
    if run is None:
        return RuntimeError(why)
    if run.stopping is not None:
        return run.stopping
    error.args = error.args or (why,)
    return error


# -- a loop that a thread keeps ----------------------------------------------------------------------------------------


class _Kept:
    """A thread's event loop, which is closed with the thread. It is made in an empty context, as it keeps that: the
    run that happens to be its first, and the run's app, would live as long as the thread.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = Context().run(asyncio.new_event_loop)
        self.named: set[tuple[str, str]] = set()

    def name_left(self, run: Run) -> None:
        """Log once which asyncio tasks handlers of the role leave running: on this loop they hardly go on."""
        for left in asyncio.all_tasks(self.loop):
            code = getattr(left.get_coro(), "__qualname__", left.get_name())
            if (run.role.name, code) not in self.named:
                self.named.add((run.role.name, code))
                logger.warning(
                    "Task %s of %s has left an asyncio task running (%s): here it goes on only while another coroutine "
                    "runs; let the handler await it, or serve the role with -P asyncio",
                    run.task.id, run.role.name, code,
                )  # fmt: skip

    def __del__(self) -> None:
        if self.pid == os.getpid() and not self.loop.is_closed():
            with suppress(Exception):
                self.loop.close()


_of_thread = threading.local()

#: In a forked process, this keeps the parent's loops open: closing one would remove its files from the parent's epoll.
_parents: list[_Kept] = []


def _kept() -> _Kept:
    kept: _Kept | None = getattr(_of_thread, "kept", None)
    if kept is not None and kept.pid != os.getpid():
        _parents.append(kept)
        kept = None
    if kept is None or kept.loop.is_closed():
        kept = _of_thread.kept = _Kept()
    return kept


def _here(awaitable: Awaitable[Any], run: Run | None) -> Any:
    kept = _kept()
    loop = kept.loop
    task = loop.create_task(as_coroutine(awaitable))
    if run is not None:
        run.awaited = Awaited(loop, task)
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError as error:
        raise why_cancelled(run, error) from None
    except BaseException:
        _end(loop, task)
        raise
    finally:
        if run is not None:
            run.awaited = None
            kept.name_left(run)


def _end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Wait for the coroutine's end after an exception in the loop itself, such as a signal's; then the thread goes
    on. If another exception cuts the wait short, the coroutine is dropped with its loop: it would go on within the next
    handlers.
    """
    if task.done():
        return
    task.cancel()
    try:
        with suppress(asyncio.CancelledError, Exception):
            loop.run_until_complete(task)
    finally:
        if not task.done():
            _of_thread.kept = None
            logger.warning("A coroutine that ignores its cancel is dropped with the loop of its process: %r", task)


def _in_thread(awaitable: Awaitable[Any], run: Run | None) -> Any:
    ended: Future[Any] = Future()
    context = stacks.context_of_thread()

    def act() -> None:
        try:
            ended.set_result(context.run(_here, awaitable, run))
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=act, name="celeriac-coroutine", daemon=True).start()
    return ended.result()


# -- an asyncio pool ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ended:
    """The value a flying greenlet returns once its task has ended; `error`: the exception it raised."""

    error: BaseException | None = None


_RETURNED = _Ended()


class Flying(greenlet):
    """A greenlet for synchronous code around a coroutine. It serves one task after another.

    `is_dropped`: its loop has dropped it while it waited; a GeneratorExit or GreenletExit is then not a handler's.
    """

    is_dropped = False

    def run(self, job: list[Callable[[], object]]) -> None:
        """Serve jobs. Each is a list of one function, which is taken out, so that a waiting greenlet keeps nothing of
        the last job alive.
        """
        while True:
            job = self.parent.switch(_served(job))


def _served(job: list[Callable[[], object]]) -> _Ended:
    try:
        job.pop()()
    except BaseException as error:
        if isinstance(error, GreenletExit) and is_dropped():
            raise
        return _Ended(error)
    return _RETURNED


def in_flight() -> bool:
    return isinstance(getcurrent(), Flying)


class GreenletPool:
    """The flying greenlets of one loop. They are reused: making a new one takes ten times as long as a small task,
    since Python maps memory for its frames.
    """

    #: Maximum number of idle greenlets kept for the next tasks.
    KEPT = 1_000

    def __init__(self) -> None:
        self._idle: list[Flying] = []

    async def spawn(self, act: Callable[[], object]) -> None:
        """Run `act`, which may wait for awaitables (`_await_here`) without blocking the loop, in this context."""
        here = getcurrent()
        flying = self._idle.pop() if self._idle else Flying()
        flying.parent, flying.gr_context = here, here.gr_context
        awaitable = flying.switch([act])
        while not isinstance(awaitable, _Ended):
            try:
                value = await awaitable
            except BaseException as error:
                flying.is_dropped = isinstance(error, GeneratorExit) and not loop_runs_here()
                awaitable = flying.throw(error)
            else:
                awaitable = flying.switch(value)
        flying.gr_context = None
        if len(self._idle) < self.KEPT:
            self._idle.append(flying)
        if awaitable.error is not None:
            raise awaitable.error


def _await_here(awaitable: Awaitable[Any], run: Run | None) -> Any:
    try:
        return getcurrent().parent.switch(awaitable)
    except asyncio.CancelledError as error:
        raise why_cancelled(run, error) from None


def aside(act: Callable[[], T]) -> T:
    """Call `act`, which may wait for Postgres, here or, where it would block an asyncio pool's loop, in another
    thread.
    """
    if not in_flight():
        return act()
    return _uncancelled(in_thread(act))


def patiently(act: Callable[[], T], what: str) -> T:
    """Call `act` aside, again while Postgres is away. Raises LeaseLost if it stays away: the task then runs again."""
    try:
        return aside(lambda: retry_while_away(act, what))
    except DBAPIError as error:
        if not is_gone(error):
            raise
        raise LeaseLost(f"could not {what}: {error}") from error


def _uncancelled(future: asyncio.Future[T]) -> T:
    while not future.done():
        with suppress(asyncio.CancelledError):  # the handler has ended: there is nothing left to cancel
            getcurrent().parent.switch(asyncio.wait([future]))
    return future.result()


def finish(coroutine: Coroutine[Any, Any, T], begun_on: asyncio.AbstractEventLoop | None) -> T:
    """Run one of the engine's own coroutines to its end, from any thread, on this loop if the loop still runs."""
    if in_flight():
        return _uncancelled(asyncio.get_running_loop().create_task(coroutine))
    if begun_on is not None and begun_on.is_running() and begun_on is not asyncio._get_running_loop():
        return asyncio.run_coroutine_threadsafe(coroutine, begun_on).result()
    return cast(T, result_of(coroutine, None))


def in_thread(act: Callable[[], T]) -> asyncio.Future[T]:
    """Call `act` in another thread and return an awaitable. The threads are the engine's own: handlers may have taken
    all of their loop's (`asyncio.to_thread`), or shut its executor.
    """
    return asyncio.get_running_loop().run_in_executor(_threads.executor(), copy_context().run, act)


class _Threads:
    """The engine's own threads of a process, made when they are first needed."""

    def __init__(self) -> None:
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def executor(self) -> ThreadPoolExecutor:
        if self._executor is None:  # two threads may each make one, which does no harm
            self._executor = ThreadPoolExecutor(THREADS, "celeriac-aside")
        return self._executor


_threads = _Threads()


def line_of(ident: int | None) -> str:
    """Return the file, line and function at which a thread is."""
    frame = sys._current_frames().get(ident or 0)
    if frame is None:
        return "at an unknown line"
    return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


# -- gevent ------------------------------------------------------------------------------------------------------------


def in_greenlets() -> bool:
    """Return whether gevent has patched threads: then all greenlets are one thread, which runs one loop at a time."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched("threading")


def _in_native_thread(awaitable: Awaitable[Any], run: Run | None) -> Any:
    """Run the awaitable in a native thread. An exception in the greenlet that waits cancels the coroutine."""
    from gevent import get_hub

    context = stacks.context_of_thread()
    waiting = get_hub().threadpool.spawn(_caught, partial(context.run, _here, awaitable, run))
    try:
        result, error = waiting.get()
    except BaseException as interrupt:
        if run is not None and run.awaited is not None:
            run.awaited.stop(run, interrupt)
        raise
    if error is not None:
        raise error
    return result


def _caught(act: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Return the result and the exception, if any: gevent ends the process for a SystemExit that leaves a native
    thread.
    """
    try:
        return act(), None
    except BaseException as error:
        return None, error
