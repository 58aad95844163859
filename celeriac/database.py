"""The engine's connections to Postgres."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError

#: Without these a connection to a host that vanished blocks for ever. A frozen host is the watchdog's business.
KEEPALIVES = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


class Database:
    """One engine a process. `statement()` is for a single statement: autocommit saves two round trips."""

    def __init__(self, url: str, *, name: str = "celeriac", pool_size: int = 5) -> None:
        self.url = url
        connect = {"application_name": name, "connect_timeout": 5, **KEEPALIVES}
        self.engine: Engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg2"),
            pool_size=pool_size,
            max_overflow=pool_size * 4,
            connect_args=connect,
            pool_use_lifo=True,
        )
        self._single = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        event.listen(self.engine, "connect", lambda connection, _: self._open.add(connection))
        os.register_at_fork(after_in_child=self.forget_connections)

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        with self._single.connect() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self.engine.begin() as connection:
            yield connection

    def open_connections(self) -> list[Any]:
        """The driver's connections that are not closed."""
        return [connection for connection in list(self._open) if not connection.closed]

    def forget_connections(self) -> None:
        """In a forked child: the parent's sockets are the parent's."""
        self.engine.dispose(close=False)


def is_gone(error: BaseException) -> bool:
    """Whether it says that Postgres went away (restart, network), not that the statement was wrong."""
    if not isinstance(error, DBAPIError):
        return False
    code: Any = getattr(error.orig, "pgcode", None)
    return bool(error.connection_invalidated or code is None or code[:2] in ("57", "08"))
