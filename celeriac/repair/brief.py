"""What takes a strong lock waits for it briefly: behind whoever waits for one, all others wait."""

from __future__ import annotations

from collections.abc import Callable

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.store.connections import Database

#: How long (milliseconds) it waits for whoever reads or writes.
PATIENCE_MS = 100


def briefly(database: Database, act: Callable[[Connection], int], *, patience_ms: int = PATIENCE_MS) -> int:
    """What `act` came to, in a transaction of its own; 0 where somebody has what it locks: the next sweep comes."""
    try:
        with database.transaction() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{patience_ms} ms'")
            return act(connection)
    except DBAPIError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        return 0
