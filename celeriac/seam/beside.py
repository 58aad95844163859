"""Calls beside a caller's event loop: blocking ones run in a few threads, or await the caller's own connection."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.orm import scoped_session
from sqlalchemy.util import await_only

from celeriac.errors import NoAnswer, NotReady
from celeriac.run import coroutines, stacks
from celeriac.run import run as running
from celeriac.run.coroutines import getcurrent
from celeriac.store.drivers import way_into
from celeriac.store.forks import after_fork

T = TypeVar("T")

#: Maximum number of a process's threads that write for its event loops; further calls await one without blocking.
THREADS = 8


class Beside:
    """A few threads, started at the first call. `limit`: seconds an enqueue waits for Postgres."""

    #: Awaits a call in the thread where a framework has its transactions for this coroutine.
    frameworks: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._guard = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._failed = -math.inf

    def _pool(self) -> ThreadPoolExecutor:
        with self._guard:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="celeriac-beside")
            return self._threads

    def close(self) -> None:
        """End the threads once their work is done. Later work starts others."""
        with self._guard:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()

    async def run(self, act: Callable[[], T]) -> T:
        """Run `act` in a thread, with this context's variables.

        If cancelled before it begins, `act` does not run; once begun, it runs to its end.
        """
        context = stacks.context_of_thread()
        return await asyncio.get_running_loop().run_in_executor(self._pool(), context.run, act)

    async def call(self, act: Callable[[], T]) -> T:
        """Run it as `run` does, where a transaction of a framework that is open around this coroutine is found.

        A handler's coroutine runs on a loop of its own, with none around it.
        """
        run = running.current()
        if self.frameworks is None or coroutines.in_greenlets() or (run is not None and run.is_async):
            return await self.run(act)
        result: T = await self.frameworks(partial(stacks.context_of_thread().run, act))
        return result

    def wait(self, act: Callable[[], T]) -> T:
        """Run `act` in this thread; for a greenlet, which would block its event loop, in another thread."""
        is_awaited = getattr(getcurrent(), "__sqlalchemy_greenlet_provider__", False)
        return await_only(self.run(act)) if is_awaited else act()

    async def enqueue(self, call: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
        """Call with these options without blocking the loop; `session` and `connection` may be the loop's own."""
        for option in ("session", "connection"):
            value = options.get(option)
            if isinstance(value, scoped_session):  # it belongs to this thread
                options = {**options, option: value()}
            elif value is not None and (way := way_into(value)) is not None:
                kept = {name: said for name, said in options.items() if name not in ("session", "connection")}
                result: T = await way(partial(_call_in, call, kept))
                return result
        return await self.call(partial(self._in_turn, time.monotonic(), partial(call, dict(options))))

    def _in_turn(self, since: float, act: Callable[[], T]) -> T:
        """Run `act`, unless it waited too long for a thread while Postgres left another call without an answer.

        A burst that Postgres does answer may wait longer. Raises NotReady.
        """
        if self._failed > since and time.monotonic() - since > self.limit:
            raise NotReady("Postgres has not answered those that came before; nothing was enqueued")
        try:
            return act()
        except (NoAnswer, NotReady):
            self._failed = time.monotonic()
            raise


def _call_in(call: Callable[[dict[str, Any]], T], options: Mapping[str, Any], transaction: Any) -> T:
    return call({**options, "session": transaction})
