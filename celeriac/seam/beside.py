"""Calls beside a caller's event loop: blocking ones run in a few threads, or await the caller's own connection."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.orm import scoped_session
from sqlalchemy.util import await_only

from celeriac.errors import NoAnswer, NotReady
from celeriac.run import stacks
from celeriac.run.coroutines import getcurrent
from celeriac.store.drivers import way_into
from celeriac.store.forks import after_fork

T = TypeVar("T")

#: Calls that write to Postgres at once for a process's loops; further ones wait for a thread without blocking.
THREADS = 8


class Beside:
    """A few threads, started with their first work. `limit`: how long (seconds) an enqueue waits for Postgres."""

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
        """Run it in a thread, within this context.

        If cancelled before it begins it does not run; once begun it runs to its end.
        """
        context = stacks.context_of_thread()
        return await asyncio.get_running_loop().run_in_executor(self._pool(), context.run, act)

    def wait(self, act: Callable[[], T]) -> T:
        """Run it here, or in a thread if a greenlet would block its loop meanwhile."""
        is_awaited = getattr(getcurrent(), "__sqlalchemy_greenlet_provider__", False)
        return await_only(self.run(act)) if is_awaited else act()

    async def enqueue(self, call: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> T:
        """Call with these options, which may name a transaction of the loop's, without blocking the loop."""
        for option in ("session", "connection"):
            value = options.get(option)
            if isinstance(value, scoped_session):  # it belongs to this thread
                options = {**options, option: value()}
            elif value is not None and (way := way_into(value)) is not None:
                kept = {name: said for name, said in options.items() if name not in ("session", "connection")}
                result: T = await way(partial(_call_in, call, kept))
                return result
        return await self.run(partial(self._in_turn, time.monotonic(), partial(call, dict(options))))

    def _in_turn(self, since: float, act: Callable[[], T]) -> T:
        """Refuse a call that spent its time waiting for a thread, if Postgres failed to answer another meanwhile.

        A burst that Postgres answers may wait for longer.
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
