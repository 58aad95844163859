"""The engine's connections to Postgres."""

from __future__ import annotations

import select
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import psycopg2
from psycopg2.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, make_url
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError

from celeriac.errors import ConfigurationError
from celeriac.store import look
from celeriac.store.failures import blame
from celeriac.store.forks import after_fork
from celeriac.store.plans import BY_LOOKUPS, KEPT_PLAN

OnReady = Callable[[set[str]], None]

#: Without these a connection to a host that vanished blocks for ever; the last (milliseconds) is for one that vanished
#: before it acknowledged what was sent, which is not probed. A frozen host is the watchdog's business.
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

#: How long (seconds) Postgres may take to let us in.
CONNECT_TIMEOUT = 5

#: A transaction of ours that says nothing for so long (seconds) is ended by Postgres: its process is frozen, and what
#: it has locked is passed over by whoever rescues.
SILENCE = 15.0


def end_silent() -> str:
    """A statement that has Postgres end the transaction if it hears nothing of it for `SILENCE`."""
    return f"SET LOCAL idle_in_transaction_session_timeout = '{SILENCE * 1000:.0f} ms'"


class Database:
    """Two pools a process: `engine` for handlers' sessions, which never get a stale connection, and one of connections
    in autocommit for the verbs.

    There a single statement costs one round trip instead of three, and BEGIN and COMMIT are said where they are meant.
    A connection that Postgres ended while it was idle is replaced.
    `on_ready` hears which roles the looks after commits have given something to do.
    """

    def __init__(
        self, url: str, *, name: str = "celeriac", pool_size: int = 5, on_ready: OnReady = lambda _: None
    ) -> None:
        self.url = url
        self._address = _address(url)
        self.on_ready = on_ready
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._name = name
        self._limits = ""
        self._make_pools(pool_size)
        after_fork(self.forget_connections)

    def _make_pools(self, size: int) -> None:
        self.engine = self._engine(size, pool_pre_ping=True)
        self._verbs = self._engine(size, isolation_level="AUTOCOMMIT", pool_reset_on_return=None)
        event.listen(self._verbs, "checkout", refuse_dead)
        event.listen(self.engine, "begin", self._say_limits)

    def limit(self, *, lock: float, statement: float) -> None:
        """From now on no statement waits longer for a lock, nor takes longer in all (seconds); Postgres ends it.

        Said in each transaction: behind a pooler, what a connection is told holds for others as well.
        """
        for name, seconds in (("lock_timeout", lock), ("statement_timeout", statement)):
            self._limits += f"; SET LOCAL {name} = '{seconds * 1000:.0f} ms'"

    def _say_limits(self, connection: Connection) -> None:
        if self._limits:
            connection.exec_driver_sql(self._limits.lstrip("; "))

    def widen(self, size: int) -> None:
        """Pools for so many threads at once. Call it before there are any."""
        self.dispose()
        self._make_pools(size)

    def _engine(self, pool_size: int, **options: Any) -> Engine:
        connect = {"application_name": self._name, "connect_timeout": CONNECT_TIMEOUT, **KEEPALIVES}
        engine = create_engine(
            self._address,
            pool_size=pool_size, max_overflow=pool_size * 4, connect_args=connect, pool_use_lifo=True, **options,
        )  # fmt: skip
        event.listen(engine, "connect", lambda connection, _: self._open.add(connection))
        event.listen(engine, "handle_error", blame)
        return engine

    @contextmanager
    def statement(self) -> Iterator[Connection]:
        """For statements that need no transaction with one another."""
        if self._limits:
            with self.transaction() as connection:
                yield connection
            return
        with self._verbs.connect() as connection:
            look.asked(connection)
            yield connection
            self._look(connection)

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """The driver's own, in autocommit, for a single statement whose cost every `.delay()` feels.

        Errors are SQLAlchemy's, as everywhere; a connection that is lost takes the idle ones with it.
        """
        try:
            pooled = self._verbs.raw_connection()
        except psycopg2.Error as error:
            raise DBAPIError.instance(None, None, error, psycopg2.Error) from error
        cursor = pooled.cursor()
        try:
            yield cursor
        except psycopg2.Error as error:
            raise self._told(error, pooled, cursor) from error
        finally:
            pooled.close()

    def _told(self, error: Any, pooled: Any, cursor: Any) -> BaseException:
        gone = self._verbs.dialect.is_disconnect(error, pooled.dbapi_connection, cursor)
        if gone:
            pooled.invalidate(error)
            self._verbs.dispose()
        return DBAPIError.instance(None, None, error, psycopg2.Error, connection_invalidated=gone)

    @contextmanager
    def transaction(self, *, patience: float | None = None) -> Iterator[Connection]:
        """Commits at the end, rolls back on any exception.

        `patience`: how long (seconds) it waits for a lock; then Postgres ends it (LockNotAvailable).
        """
        briefly = "" if patience is None else f"; SET LOCAL lock_timeout = '{patience * 1000:.0f} ms'"
        with self._verbs.connect() as connection:
            connection.exec_driver_sql(f"BEGIN; {end_silent()}{self._limits}{briefly}")
            look.asked(connection)
            try:
                yield connection
            except BaseException:
                _roll_back(connection)
                raise
            connection.exec_driver_sql("COMMIT")
            self._look(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """For what surfaces ask but figures (decision 16): rolled back, and planned by look-ups."""
        with self._verbs.connect() as connection:
            connection.exec_driver_sql(f"BEGIN; {end_silent()}{self._limits}; {BY_LOOKUPS}")
            try:
                yield connection
            finally:
                _roll_back(connection)

    def _look(self, connection: Connection) -> None:
        keys = look.asked(connection)
        if keys and (roles := self._after(connection, keys)):
            self.on_ready(roles)

    def _after(self, connection: Connection, keys: Iterable[str]) -> set[str]:
        if not self._limits:
            return look.after(connection, keys)
        try:
            connection.exec_driver_sql(f"BEGIN{self._limits}")
            roles = look.after(connection, keys)
            connection.exec_driver_sql("COMMIT")
        except DBAPIError:  # what was written is committed: the sweep looks again
            _roll_back(connection)
            return set()
        return roles

    def look_at(self, keys: Iterable[str]) -> None:
        """The look after a commit that was not made on a connection of this pool."""
        if wanted := set(keys):
            with self.statement() as connection:
                look.ask(connection, wanted)

    def open_connections(self) -> list[Any]:
        """The driver's connections that are not closed."""
        return [connection for connection in list(self._open) if not connection.closed]

    def dispose(self) -> None:
        """Closes what is not in use."""
        self.engine.dispose()
        self._verbs.dispose()

    def forget_connections(self) -> None:
        """In a forked child: the parent's sockets are the parent's."""
        self.engine.dispose(close=False)
        self._verbs.dispose(close=False)


def refuse_dead(connection: Any, *_: Any) -> None:
    """Has the pool connect anew after a restart of Postgres. Nobody spoke: what there is to read is its farewell."""
    idle = select.poll()
    if not connection.closed:
        idle.register(connection.fileno(), select.POLLIN)
    if connection.closed or idle.poll(0):
        raise InvalidatePoolError("Postgres has ended the idle connection")


def _address(url: str) -> URL:
    """Raises ConfigurationError, without what may be a password."""
    try:
        address = make_url(url)
    except ArgumentError:
        address = None
    if address is None or address.get_backend_name() not in ("postgresql", "postgres"):
        raise ConfigurationError(
            "DATABASE_URL names no Postgres: give postgresql://user:password@host:port/name, what is special in a "
            "password as %XX"
        )
    return address.set(drivername="postgresql+psycopg2")


def for_cursor(statement: TextClause) -> str:
    """A statement as `Database.cursor` takes it: compiled once, not looked up for every task."""
    return str(statement.compile(dialect=PGDialect_psycopg2()))


class Prepared:
    """A statement that each connection parses and plans once; `Database.cursor` executes it.

    `parameters`: name → SQL type. Its name is its text's hash, so that no other release's statement is taken for it.
    Behind a pooler that deals out another connection for each statement, the name is
    unknown or taken there: then this process goes on without preparing.
    """

    def __init__(self, statement: TextClause, parameters: Mapping[str, str]) -> None:
        self.unprepared = for_cursor(statement)
        name = f"celeriac_{sha256(f'{self.unprepared} {parameters}'.encode()).hexdigest()[:24]}"
        numbers = {p: f"${n}" for n, p in enumerate(parameters, start=1)}
        given = ", ".join(f"%({p})s" for p in parameters)
        types = ", ".join(parameters.values())
        self.prepare = f"PREPARE {name} ({types}) AS {self.unprepared % numbers}"
        self.prepared = f"EXECUTE {name} ({given})"
        self.kept_plan = f"{KEPT_PLAN}; {self.prepared}"
        self.gives_up = False
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def on(self, connection: Connection, given: Mapping[str, Any]) -> Any:
        """On a connection of the engine's. Within a transaction, which a name that is unknown would end, unprepared.

        The plan is kept, and may be made while the queue is idle.
        """
        raw: Any = connection.connection.dbapi_connection
        if raw.info.transaction_status != TRANSACTION_STATUS_IDLE:
            return connection.exec_driver_sql(self.unprepared, dict(given))
        if self.gives_up:
            return connection.exec_driver_sql(f"{KEPT_PLAN}; {self.unprepared}", dict(given))
        try:
            if raw not in self._seen:
                connection.exec_driver_sql(self.prepare)
                self._seen.add(raw)
            return connection.exec_driver_sql(self.kept_plan, dict(given))
        except DBAPIError as error:
            if not isinstance(error.orig, InvalidSqlStatementName | DuplicatePreparedStatement):
                raise
        self.gives_up = True
        return self.on(connection, given)

    def execute(self, cursor: Any, given: Mapping[str, Any], *, before: str = "") -> None:
        """`before`: statements of the same trip and transaction."""
        if self.gives_up:
            return cursor.execute(before + self.unprepared, given)
        try:
            if cursor.connection not in self._seen:
                cursor.execute(self.prepare)
                self._seen.add(cursor.connection)
            cursor.execute(before + self.prepared, given)
        except (InvalidSqlStatementName, DuplicatePreparedStatement):
            self.gives_up = True
            cursor.execute(before + self.unprepared, given)
        return None


def _roll_back(connection: Connection) -> None:
    """A connection that is gone, or cannot even roll back, goes; the server rolls back for it."""
    if connection.invalidated:
        return
    try:
        connection.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        connection.invalidate()
