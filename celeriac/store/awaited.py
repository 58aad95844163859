"""Engines on psycopg 3 for the sessions of `async def` handlers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, QueuePool
from sqlalchemy.util import await_only
from sqlalchemy.util.queue import Empty

from celeriac.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

#: The owner of the connections that this context takes: a handler's run.
holder: ContextVar[object] = ContextVar("celeriac holder of connections", default=None)


class OfThreads(QueuePool):
    """A pool for loops that run one handler at a time, each in its thread; the thread waits if no connection is
    free.
    """

    _is_asyncio = True  # SQLAlchemy reads this to know whether its connections are awaited


class OfLoop(AsyncAdaptedQueuePool):
    """A pool for handlers that share one loop: `pool_size` of them have connections at once, and the others wait.

    A handler that has one gets a second one, for an early commit, without waiting; otherwise all might wait for each
    other.
    """

    def __init__(self, creator: Callable[[], Any], pool_size: int = 5, **options: Any) -> None:
        super().__init__(creator, pool_size=pool_size, **{**options, "max_overflow": -1, "timeout": None})
        self._gate = asyncio.Semaphore(pool_size)
        self._within: Counter[object] = Counter()
        self._through: set[object] = set()
        self._whose: dict[ConnectionPoolEntry, object] = {}

    def _do_get(self) -> ConnectionPoolEntry:
        whose = holder.get()
        self._within[whose] += 1
        try:
            if self._within[whose] == 1:
                await_only(self._gate.acquire())
                self._through.add(whose)
            entry = super()._do_get()
        except BaseException:
            self._leave(whose)
            raise
        self._whose[entry] = whose
        return entry

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        self._leave(self._whose.pop(record, None))

    def _leave(self, whose: object) -> None:
        self._within[whose] -= 1
        if self._within[whose] > 0:
            return
        del self._within[whose]
        if whose in self._through:
            self._through.discard(whose)
            self._gate.release()


def engine(address: URL, pool: type[QueuePool], **options: Any) -> AsyncEngine:
    """Return an engine that binds parameters in the client, as psycopg2 does: the engine's statements are written for
    that, and none is prepared, which some poolers do not support. Raises ConfigurationError without psycopg or
    greenlet.
    """
    for needed in ("psycopg", "greenlet"):
        if find_spec(needed) is None:
            raise ConfigurationError(
                f"self.session of an `async def` handler needs {needed}: pip install 'celeriac[asyncio]'"
            )
    from psycopg import AsyncClientCursor
    from sqlalchemy.ext.asyncio import create_async_engine

    connect = {**options.pop("connect_args"), "cursor_factory": AsyncClientCursor, "prepare_threshold": None}
    url = address.set(drivername="postgresql+psycopg")
    return create_async_engine(url, poolclass=pool, connect_args=connect, **options)


def shut(engine: AsyncEngine) -> None:
    """Close the connections that are not in use, from any thread: an awaited close would need the loop."""
    pool = engine.sync_engine.pool
    assert isinstance(pool, QueuePool)
    engine.sync_engine.dispose(close=False)
    while True:
        try:
            entry = pool._pool.get(block=False)
        except Empty:
            return
        if entry.driver_connection is not None:
            entry.driver_connection.pgconn.finish()
