"""Short waits for strong locks: while a statement waits for such a lock, all others on the table wait behind it."""

from __future__ import annotations

from collections.abc import Callable

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from celeriac.store.connections import Database

#: Milliseconds that the statement waits for readers and writers of the table.
PATIENCE_MS = 100


def briefly(database: Database, act: Callable[[Connection], int], *, patience_ms: int = PATIENCE_MS) -> int:
    """Run `act` in a transaction of its own and return its result; 0 if it met a lock, and the next sweep has to try
    again.
    """
    try:
        with database.transaction() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{patience_ms} ms'")
            return act(connection)
    except DBAPIError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        return 0
