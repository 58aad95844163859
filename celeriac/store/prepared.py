"""Prepared: frequent statements that each connection parses and plans once."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from psycopg2.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import Connection, TextClause
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.exc import DBAPIError

from celeriac.store.patience import UNSAID
from celeriac.store.plans import KEPT_PLAN


@lru_cache(maxsize=512)
def for_cursor(statement: TextClause) -> str:
    """Return a statement as `Database.cursor` takes it: compiled once, not looked up for every task."""
    return str(statement.compile(dialect=PGDialect_psycopg2()))


def driver_rows(result: Any) -> list[tuple[Any, ...]]:
    """Return the driver's own rows, where there are so many that wrapping each would cost time."""
    if not hasattr(result, "cursor"):  # from another driver's connection
        return [tuple(row) for row in result]
    rows: list[tuple[Any, ...]] = result.cursor.fetchall()
    result.close()
    return rows


class Prepared:
    """A statement that each connection parses and plans once; `Database.cursor` executes it.

    `parameters`: name → SQL type. Its name is its text's hash, so that another release's statement is not taken for it.
    Behind a pooler that uses another connection for each statement, the name is unknown or taken there: then this
    process goes on without preparing.
    """

    def __init__(self, statement: TextClause, parameters: Mapping[str, str]) -> None:
        self.unprepared = for_cursor(statement)
        name = f"celeriac_{sha256(f'{self.unprepared} {parameters}'.encode()).hexdigest()[:24]}"
        numbers = {p: f"${n}" for n, p in enumerate(parameters, start=1)}
        placeholders = ", ".join(f"%({p})s" for p in parameters)
        types = ", ".join(parameters.values())
        self.prepare = f"PREPARE {name} ({types}) AS {self.unprepared % numbers}"
        self.prepared = f"EXECUTE {name} ({placeholders})"
        self.kept_plan = f"{KEPT_PLAN}; {self.prepared}"
        self.gives_up = False
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def on(self, connection: Connection, parameters: Mapping[str, Any]) -> Any:
        """Execute on a connection of the engine's; unprepared within a transaction, which an unknown name would end.

        The plan is kept, and may be made while the queue is idle.
        """
        if not isinstance(connection, Connection):  # somebody else's, in a transaction
            return connection.exec_driver_sql(self.unprepared, dict(parameters))
        raw: Any = connection.connection.dbapi_connection
        if UNSAID in connection.info or raw.info.transaction_status != TRANSACTION_STATUS_IDLE:
            return connection.exec_driver_sql(self.unprepared, dict(parameters))
        if self.gives_up:
            return connection.exec_driver_sql(f"{KEPT_PLAN}; {self.unprepared}", dict(parameters))
        try:
            if raw not in self._seen:
                connection.exec_driver_sql(self.prepare)
                self._seen.add(raw)
            return connection.exec_driver_sql(self.kept_plan, dict(parameters))
        except DBAPIError as error:
            if not isinstance(error.orig, InvalidSqlStatementName | DuplicatePreparedStatement):
                raise
        self.gives_up = True
        return self.on(connection, parameters)

    def rows(self, connection: Connection, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Execute as `on` does and return the driver's rows."""
        return driver_rows(self.on(connection, parameters))

    def execute(self, cursor: Any, parameters: Mapping[str, Any], *, before: str = "") -> None:
        """Execute on `Database.cursor`. `before`: statements for the same trip and transaction."""
        before = cursor.before + before
        if self.gives_up:
            return cursor.execute(before + self.unprepared, parameters)
        try:
            if cursor.connection not in self._seen:
                cursor.execute(before + self.prepare)
                self._seen.add(cursor.connection)
            cursor.execute(before + self.prepared, parameters)
        except (InvalidSqlStatementName, DuplicatePreparedStatement):
            self.gives_up = True
            cursor.execute(before + self.unprepared, parameters)
        return None
