"""Drivers: wrap a caller's own connection, of any supported driver, so that the verbs can execute on it.

A verb executes SQL and reads rows; it never commits. So a stand-in with `execute`, `exec_driver_sql` and `begin_nested`
serves it on any driver, in the caller's transaction. A driver for an event loop is awaited by the greenlet around the
verb (SQLAlchemy's `greenlet_spawn`): there is one verb, and no second one for `async`.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import psycopg2.extensions
from sqlalchemy import Connection, TextClause
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData
from sqlalchemy.util import await_only, greenlet_spawn

from celeriac.errors import ConfigurationError
from celeriac.store.encoding import texts
from celeriac.store.prepared import for_cursor

if TYPE_CHECKING:
    import asyncpg
    import psycopg

#: The column names and the rows of an answer.
Answer = tuple[Sequence[str], Sequence[Sequence[Any]]]


class Statements(ABC):
    """A transaction of somebody else's. `info` is for the verbs, like that of a SQLAlchemy connection."""

    def __init__(self) -> None:
        self.info: dict[Any, Any] = {}

    @abstractmethod
    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        """Execute a statement with parameters as `%(name)s`; one that returns no rows gives none."""

    def execute(self, statement: TextClause, parameters: Mapping[str, Any] | None = None) -> IteratorResult[Any]:
        return self.exec_driver_sql(for_cursor(statement), parameters)

    def exec_driver_sql(self, statement: str, parameters: Mapping[str, Any] | None = None) -> IteratorResult[Any]:
        names, rows = self.fetch(statement, parameters or {})
        return IteratorResult(SimpleResultMetaData(names), iter(rows))

    @contextmanager
    def begin_nested(self) -> Iterator[None]:
        """Open a savepoint: if something raises within it, nothing of it is left."""
        self.fetch("SAVEPOINT celeriac", {})
        try:
            yield
        except BaseException:
            with suppress(Exception):  # on a lost connection there is nothing to roll back
                self.fetch("ROLLBACK TO SAVEPOINT celeriac", {})
            raise
        self.fetch("RELEASE SAVEPOINT celeriac", {})


class Bare(Statements):
    """A driver's connection, without SQLAlchemy."""

    @property
    @abstractmethod
    def is_autocommit(self) -> bool:
        """True if the next statement would be committed by itself."""

    @contextmanager
    def transaction(self) -> Iterator[bool]:
        """Use the caller's transaction, or open one if there is none in autocommit;
        yields whether it is its own, and committed.
        """
        is_own = self.is_autocommit
        if is_own:
            self.fetch("BEGIN ISOLATION LEVEL READ COMMITTED", {})
        try:
            yield is_own
            if is_own:
                self.fetch("COMMIT", {})
        except BaseException:
            if is_own:
                with suppress(Exception):
                    self.fetch("ROLLBACK", {})
            raise


class Psycopg2(Bare):
    def __init__(self, raw: psycopg2.extensions.connection) -> None:
        super().__init__()
        self.raw = raw

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        """Execute on the driver's own cursor, whatever row type the caller's connection has."""
        with self.raw.cursor(cursor_factory=psycopg2.extensions.cursor) as cursor:
            cursor.execute(statement, parameters)
            return _answer(cursor.description, cursor.fetchall() if cursor.description else ())

    @property
    def is_autocommit(self) -> bool:
        is_idle = self.raw.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_IDLE
        return self.raw.autocommit and is_idle


class Psycopg(Bare):
    """A connection of psycopg 3, which binds parameters in the client here, as psycopg2 does."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.raw = raw

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        from psycopg import ClientCursor
        from psycopg.rows import tuple_row

        text: Any = statement
        with ClientCursor(self.raw, row_factory=tuple_row) as cursor:
            cursor.execute(text, parameters)
            return _answer(cursor.description, cursor.fetchall() if cursor.description else ())

    @property
    def is_autocommit(self) -> bool:
        return self.raw.autocommit and self.raw.info.transaction_status == self.raw.info.transaction_status.IDLE


class AsyncPsycopg(Bare):
    """psycopg 3 for an event loop. Called within a greenlet of SQLAlchemy's."""

    def __init__(self, raw: psycopg.AsyncConnection[Any]) -> None:
        super().__init__()
        self.raw = raw

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        return await_only(self._fetch(statement, parameters))

    async def _fetch(self, statement: Any, parameters: Mapping[str, Any]) -> Answer:
        from psycopg import AsyncClientCursor
        from psycopg.rows import tuple_row

        async with AsyncClientCursor(self.raw, row_factory=tuple_row) as cursor:
            await cursor.execute(statement, parameters)
            return _answer(cursor.description, await cursor.fetchall() if cursor.description else ())

    @property
    def is_autocommit(self) -> bool:
        return self.raw.autocommit and self.raw.info.transaction_status == self.raw.info.transaction_status.IDLE


class Asyncpg(Bare):
    """asyncpg. Called within a greenlet of SQLAlchemy's."""

    def __init__(self, raw: asyncpg.Connection[Any]) -> None:
        super().__init__()
        self.raw = raw

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        numbered, names = by_number(statement)
        rows = await_only(self.raw.fetch(numbered, *(as_text(name, parameters) for name in names)))
        return (list(rows[0].keys()) if rows else [""]), [tuple(row) for row in rows]

    @property
    def is_autocommit(self) -> bool:
        return not self.raw.is_in_transaction()


class AsyncpgOfSQLAlchemy(Statements):
    """asyncpg under a SQLAlchemy Connection, which hands it raw statements as they are."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.begin_nested = connection.begin_nested  # type: ignore[method-assign, assignment]

    def fetch(self, statement: str, parameters: Mapping[str, Any]) -> Answer:
        numbered, names = by_number(statement)
        values = tuple(as_text(name, parameters) for name in names)
        with self.connection.exec_driver_sql(numbered, values) as result:
            return (list(result.keys()), [tuple(row) for row in result]) if result.returns_rows else ([""], ())


def _answer(description: Sequence[Any] | None, rows: Sequence[Any]) -> Answer:
    return [column[0] for column in description or ()] or [""], rows


# -- which driver a caller's is ----------------------------------------------------------------------------------------

#: Drivers under a SQLAlchemy Connection that take statements as the engine's own does.
_ALIKE = ("psycopg2", "psycopg", "psycopg_async")


def statements_on(connection: Connection) -> Any:
    """Return what the verbs execute on: the connection itself if its driver takes their statements, else a stand-in.

    Raises ConfigurationError for a driver that cannot take them.
    """
    driver = connection.dialect.driver
    if driver in _ALIKE:
        return connection
    if driver == "asyncpg":
        return AsyncpgOfSQLAlchemy(connection)
    raise ConfigurationError(
        f"tasks cannot be enqueued through SQLAlchemy's driver {driver!r}: use psycopg2, psycopg or asyncpg"
    )


def bare(value: Any) -> Bare | None:
    """Return the wrapper of a driver's blocking connection; None for anything else."""
    if isinstance(value, Bare):
        return value
    if isinstance(value, psycopg2.extensions.connection):
        return Psycopg2(value)
    return Psycopg(value) if _is(value, "psycopg", "Connection") else None


#: Calls a function with the caller's transaction without blocking its loop.
Way = Callable[[Callable[[Any], Any]], Awaitable[Any]]


def way_into(value: Any) -> Way | None:
    """Return how to write to an event loop's transaction; None if the value is none."""
    if _is(value, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        return way_into(value())
    if _is(value, "sqlalchemy.ext.asyncio", "AsyncSession") or _is(value, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        run_sync: Way = value.run_sync
        return run_sync
    if _is(value, "psycopg", "AsyncConnection"):
        return partial(_in_greenlet, AsyncPsycopg(value))
    if _is(value, "asyncpg", "Connection") or _is(value, "asyncpg.pool", "PoolConnectionProxy"):
        return partial(_in_greenlet, Asyncpg(value))
    return None


async def _in_greenlet(statements: Bare, act: Callable[[Any], Any]) -> Any:
    if find_spec("greenlet") is None:
        raise ConfigurationError("a transaction of an event loop's needs greenlet: pip install 'celeriac[asyncio]'")
    return await greenlet_spawn(act, statements)


def _is(value: Any, module: str, name: str) -> bool:
    """Return whether the value is of this type, without importing a driver that nobody uses."""
    imported = sys.modules.get(module)
    return imported is not None and isinstance(value, getattr(imported, name))


# -- asyncpg's parameters ----------------------------------------------------------------------------------------------

_PARAMETER = re.compile(r"CAST\(%\((?P<cast>\w+)\)s AS |%\((?P<plain>\w+)\)s|%%")


@cache
def by_number(statement: str) -> tuple[str, Sequence[tuple[str, bool]]]:
    """Return the statement with $1, $2, …, and for each of these its name and whether it is sent as text.

    A parameter with a CAST is sent as text and cast by Postgres. So neither the types that asyncpg demands nor the
    codecs that the caller has set for them (mostly for JSON) matter.
    """
    names: list[tuple[str, bool]] = []

    def number(match: re.Match[str]) -> str:
        cast, plain = match["cast"], match["plain"]
        if cast is None and plain is None:
            return "%"
        parameter = (cast or plain, cast is not None)
        if parameter not in names:
            names.append(parameter)
        place = f"${names.index(parameter) + 1}"
        return place if cast is None else f"CAST(CAST({place} AS text) AS "

    return _PARAMETER.sub(number, statement), names


def as_text(name: tuple[str, bool], parameters: Mapping[str, Any]) -> Any:
    """Return the value of a parameter of `by_number`."""
    value = parameters[name[0]]
    if value is None or isinstance(value, str) or not name[1]:
        return value
    if isinstance(value, list | tuple):
        return texts(map(str, value))
    return str(value)
