"""The engine's connections to Postgres."""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import Connection, Dialect, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import QueuePool

from celeriac import logged
from celeriac.store import addresses, attempts, awaited, look, pools
from celeriac.store.encoding import parsed
from celeriac.store.failures import blame, quote_nothing, takes_no_writes, unquoted
from celeriac.store.forks import after_fork, let_go
from celeriac.store.overdue import Watch
from celeriac.store.patience import BRIEF, SETTLED_IN, UNSAID, in_ms, lock_timeout, settle_in
from celeriac.store.plans import BY_LOOKUPS

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

logger = logging.getLogger(__name__)

OnReady = Callable[[set[str]], None]

#: Keepalive parameters, without which a connection to a host that vanished blocks for ever. The last one (milliseconds)
#: is for data that was sent and not acknowledged, during which there are no probes. The watchdog handles a frozen host.
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

#: Seconds that a verb waits for others to return a connection: as long as an enqueue may take by default.
POOL_TIMEOUT = 10.0

#: Maximum seconds for connecting.
CONNECT_TIMEOUT = 5

#: Seconds for which one of the engine's transactions may be idle before Postgres ends it: its process is frozen, and a
#: rescue could not lock the rows it holds.
SILENCE = 15.0


#: The isolation that each of the engine's transactions sets. The promises need it, and a database, a login or a service
#: may have another default.
READ_COMMITTED = "ISOLATION LEVEL READ COMMITTED"

#: The same for a statement without BEGIN, sent with it in one round trip.
ISOLATE = f"SET TRANSACTION {READ_COMMITTED}; "


#: The settings that `Database.cursor` sends before a statement, and those it sends once to a connection of this
#: process's own.
_BRIEFLY = f"{ISOLATE}SET LOCAL lock_timeout = '{in_ms(BRIEF)}'; "
_BRIEFLY_HERE = f"SET lock_timeout = '{in_ms(BRIEF)}'"


def end_silent() -> str:
    """Return a statement that makes Postgres end the transaction if it gets nothing from it for `SILENCE`."""
    return f"SET LOCAL idle_in_transaction_session_timeout = '{SILENCE * 1000:.0f} ms'"


class BriefCursor(psycopg2.extensions.cursor):
    """A cursor. `before`: what to send before a statement in the same trip, so that it waits no longer than `BRIEF`."""

    before = ""


class NoTime(NoConnection):
    """An enqueue's time ended before it got a connection: nothing was sent."""


class Database:
    """Two pools a process: `engine` for handlers' sessions, which never get a stale connection, and one of connections
    in autocommit for the verbs.

    There a single statement costs one round trip instead of three, and BEGIN and COMMIT are explicit. A connection that
    Postgres ended while it was idle is replaced. A BEGIN goes with the first statement that follows it. `on_ready` is
    called with the roles to which a post-commit check has given ready tasks. `answers_within`: how long (seconds) an
    enqueue waits for Postgres' answer, that is, what uses `cursor` or is `limited`. `sessions`: how many coroutines of
    one loop have a connection at once. `answered`: when Postgres answered last (`time.monotonic()`).
    """

    def __init__(
        self, url: str, *, name: str = "celeriac", pool_size: int = 5, on_ready: OnReady = lambda _: None,
        answers_within: float = 10.0, sessions: int = 20,
    ) -> None:  # fmt: skip
        self.url = url
        self.answered = 0.0
        self._sessions = sessions
        self._awaited: dict[type[QueuePool], AsyncEngine] = {}
        self.watch = Watch(answers_within)
        self._address = addresses.postgres(url)
        self._attempts = attempts.at(url)
        self.on_ready = on_ready
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._name = name
        self._limits = ""
        self._is_pooled = False
        self._spare = pools.Spare()
        self._own: weakref.WeakSet[Any] = weakref.WeakSet()
        self._brief: weakref.WeakSet[Any] = weakref.WeakSet()
        self._limited: set[Any] = set()
        self._connecting: dict[int, float] = {}
        self._make_pools(pool_size)
        after_fork(self.forget_connections)

    def _make_pools(self, size: int) -> None:
        self._size = size
        self.engine = self._engine(size, isolation_level="READ COMMITTED", pool_pre_ping=True)
        event.listen(self.engine, "connect", self._connected)
        event.listen(self.engine, "checkout", self._refuse_unwritable)
        pools.drop_what_is_left(self.engine)
        self._verbs = self._engine(
            size, isolation_level="AUTOCOMMIT", pool_reset_on_return=None, json_deserializer=parsed,
            pool_timeout=POOL_TIMEOUT, **pools.NO_HSTORE,
        )  # fmt: skip
        pools.ask_nothing(self._verbs)
        event.listen(self._verbs, "connect", self._settle_in)
        event.listen(self._verbs, "checkout", pools.refuse_unfit)
        event.listen(self._verbs, "handle_error", quote_nothing)
        event.listen(self._verbs, "handle_error", self._blame_limit)
        event.listen(self._verbs, "before_cursor_execute", self._begin_statement, retval=True)
        event.listen(self._verbs, "after_cursor_execute", self._note_answer)
        event.listen(self._verbs, "invalidate", lambda *_: self._drop_spare())
        event.listen(self.engine, "begin", self._say_limits)

    def for_coroutines(self, *, on_loop: bool) -> AsyncEngine:
        """Return the engine for sessions of `async def` handlers; `on_loop`: of those that share an event loop. Raises
        ConfigurationError.
        """
        pool = awaited.OfLoop if on_loop else awaited.OfThreads
        if pool not in self._awaited:
            more = {"pool_size": self._sessions} if on_loop else {}
            options = self._options(self._size) | {"isolation_level": "READ COMMITTED", "pool_pre_ping": True} | more
            made = awaited.engine(self._address, pool, **options)
            self._listen(made.sync_engine)
            event.listen(made.sync_engine, "connect", self._connected)
            event.listen(made.sync_engine, "checkout", self._refuse_unwritable)
            pools.drop_what_is_left(made.sync_engine)
            event.listen(made.sync_engine, "begin", self._say_limits)
            self._awaited[pool] = made
        return self._awaited[pool]

    def _before_connecting(self, dialect: Dialect, _: Any, __: Any, options: dict[str, Any]) -> None:
        self._in_time(options)
        self._attempts.begin(dialect.loaded_dbapi.OperationalError)

    def _connected(self, raw: Any, record: Any) -> None:
        """Let a new connection ask something. A pooler lets clients in while its server is away, which is no answer."""
        self._open.add(record.driver_connection)
        with closing(raw.cursor()) as cursor:
            cursor.execute("SELECT 1")
        raw.rollback()
        self._answers()

    def _answers(self) -> None:
        self.answered = time.monotonic()
        self._attempts.succeeded()

    def _not_connected(self, context: ExceptionContext) -> None:
        if context.connection is None and not context.is_pre_ping:
            self._attempts.failed(context.original_exception)

    def _leave_read_only(self, context: ExceptionContext) -> None:
        pools.leave_read_only(context, always=self._is_pooled or context.engine is self._verbs)

    def _refuse_unwritable(self, _: Any, record: Any, __: Any) -> None:
        if not self._is_pooled and pools.is_read_only(record.driver_connection):
            pools.refuse_unwritable(record)

    def _settle_in(self, raw: Any, record: Any) -> None:
        self._open.add(record.driver_connection)
        if get_ident() in self._connecting:
            self.watch.begin(raw)
        try:
            if settle_in(raw):
                record.info[SETTLED_IN] = True
                self._own.add(raw)
            else:
                self._is_pooled = True
        finally:
            self.watch.begun.pop(raw, None)
        self._answers()

    def _begin_statement(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, _: Any, many: bool
    ) -> tuple[str, Any]:
        """Add isolation and patience to a statement outside a transaction, unless its session has them; within a
        transaction its BEGIN sets them, which goes with the first statement in one round trip.
        """
        raw = cursor.connection
        if raw in self._limited:
            self.watch.begin(raw)
        if unsaid := connection.info.pop(UNSAID, None):
            if not many:
                return unsaid + statement, parameters
            cursor.execute(unsaid)
        if raw.get_transaction_status() == TRANSACTION_STATUS_IDLE and not statement.startswith("BEGIN "):
            settled_in = SETTLED_IN in connection.info
            statement = f"{'' if settled_in else ISOLATE}{lock_timeout(settled_in=settled_in)}{statement}"
        return statement, parameters

    def _note_answer(self, _: Connection, cursor: Any, *__: Any) -> None:
        self.answered = time.monotonic()
        self.watch.begun.pop(cursor.connection, None)

    def _blame_limit(self, context: ExceptionContext) -> BaseException | None:
        """Return NoAnswer in place of the driver's error about a connection that was shut for its time limit."""
        raw = None if context.connection is None else context.connection.connection.dbapi_connection
        self.watch.begun.pop(raw, None)
        return self.watch.no_answer() if self.watch.has_ended(raw) else None

    def _in_time(self, options: dict[str, Any]) -> None:
        """Limit an enqueue's connecting to what is left of its time: others may have held all connections until now."""
        since = self._connecting.get(get_ident())
        if since is None:
            return
        left = self.watch.limit - (time.monotonic() - since)
        if left <= 0:
            raise NoTime("every connection of this process waits for Postgres, which does not answer")
        options["connect_timeout"] = max(2, min(CONNECT_TIMEOUT, math.ceil(left)))  # libpq's minimum is 2

    @contextmanager
    def _in_connecting(self) -> Iterator[None]:
        """Mark this thread's enqueue as waiting for a connection."""
        me = get_ident()
        outer = self._connecting.setdefault(me, time.monotonic())  # a signal handler's enqueue, within another
        try:
            yield
        finally:
            if self._connecting.get(me) == outer:
                self._connecting.pop(me, None)

    def limit(self, *, lock: float, statement: float) -> None:
        """Limit (seconds) how long every statement from now on waits for a lock, and how long it takes in all; Postgres
        then ends it. It is set in each transaction, because behind a pooler a session's settings apply to others as
        well.
        """
        for name, seconds in (("lock_timeout", lock), ("statement_timeout", statement)):
            self._limits += f"; SET LOCAL {name} = '{seconds * 1000:.0f} ms'"

    def _say_limits(self, connection: Connection) -> None:
        if self._limits:
            connection.exec_driver_sql(self._limits.lstrip("; "))

    def close_idle(self) -> None:
        """Close connections that nobody uses. Those in use are closed as they are given back."""
        self.engine.dispose()
        self._verbs.dispose()

    def widen(self, size: int) -> None:
        """Make pools for `size` threads at once. Call it before there are any threads."""
        self.dispose()
        self._make_pools(size)

    def _engine(self, pool_size: int, **options: Any) -> Engine:
        engine = create_engine(self._address, **self._options(pool_size), **options)
        self._listen(engine)
        return engine

    def _options(self, pool_size: int) -> dict[str, Any]:
        connect = {
            "application_name": self._name, "connect_timeout": CONNECT_TIMEOUT, "client_encoding": "UTF8", **KEEPALIVES
        }  # fmt: skip
        return {
            "hide_parameters": True, "pool_size": pool_size, "max_overflow": pool_size * 4, "connect_args": connect,
            "pool_use_lifo": True,
        }  # fmt: skip

    def _listen(self, engine: Engine) -> None:
        event.listen(engine, "do_connect", self._before_connecting)
        event.listen(engine, "handle_error", self._not_connected)
        event.listen(engine, "handle_error", blame)
        event.listen(engine, "handle_error", self._leave_read_only)

    @contextmanager
    def statement(self, *, limited: bool = False) -> Iterator[Connection]:
        """Open a connection for statements that need no common transaction; `limited` as in `transaction`."""
        if self._limits:
            with self.transaction(limited=limited) as connection:
                yield connection
            return
        with self._limited_connection() if limited else self._verbs.connect() as connection:
            info = connection.info
            info.pop(look.KEYS, None)  # what an earlier transaction has left
            info.pop(logged.ACTS, None)
            info.pop(UNSAID, None)
            yield connection
            if look.KEYS in info or logged.ACTS in info:
                self._look(connection)

    @contextmanager
    def cursor(self) -> Iterator[BriefCursor]:
        """Open the driver's own cursor, in autocommit, for a single statement that every `.delay()` waits for.

        Errors are SQLAlchemy's, as everywhere; if a connection is lost, the idle ones are closed, too. One connection
        stays out of the pool for the next call: to check it in and out takes as long as to make the row in Python. The
        pool has forgotten it, so that no finalizer of the pool closes it, in this process or in a forked one.
        """
        home = self._spare
        raw, pooled = home.take(), None
        try:
            if raw is None:
                with self._in_connecting():
                    pooled = self._verbs.raw_connection()
                raw, home = pooled.dbapi_connection, self._spare
        except psycopg2.Error as error:
            self._attempts.failed(error)
            raise DBAPIError.instance(None, None, error, psycopg2.Error) from error
        cursor = raw.cursor(cursor_factory=BriefCursor)
        watch = self.watch
        watch.begun[raw] = time.monotonic()
        if not watch.awake:
            watch.wake()
        try:
            cursor.before = "" if raw in self._brief else self._briefly(cursor, raw, pooled)
            yield cursor
        except psycopg2.Error as error:
            raise self._wrapped(error, raw, cursor) from error
        finally:
            watch.begun.pop(raw, None)
            self._give_back(home, raw, pooled)

    def _briefly(self, cursor: Any, raw: Any, pooled: Any) -> str:
        """Set the short lock timeout once on the spare connection, if it is this process's own;
        the pool's must not keep it.
        """
        if pooled is None and raw in self._own:
            cursor.execute(_BRIEFLY_HERE)
            self._brief.add(raw)
            return ""
        return _BRIEFLY

    def _give_back(self, home: pools.Spare, raw: Any, pooled: Any) -> None:
        """Return the connection. Without a lock: a signal handler may enqueue, too, and would wait for its own thread.
        Two spare connections do no harm.
        """
        if pooled is None:
            home.is_out = False
        elif home is self._spare and (home.is_out or home.idle):
            pooled.close()
            return
        else:
            pooled.detach()
        if home is self._spare and not raw.closed:
            home.idle.append(raw)
        else:
            raw.close()

    def has_spare(self) -> bool:
        """Return whether a `cursor` needs no new connection."""
        return bool(self._spare.idle or self._spare.is_out)

    def _drop_spare(self) -> None:
        """Close the spare; a connection that is in use now is closed when it is returned."""
        dropped, self._spare = self._spare, pools.Spare()
        for raw in dropped.idle:
            raw.close()

    def _wrapped(self, error: Any, raw: Any, cursor: Any) -> BaseException:
        unquoted(error)
        gone = takes_no_writes(error) or self._verbs.dialect.is_disconnect(error, raw, cursor)
        if gone:
            raw.close()
            self._drop_spare()
            self._verbs.dispose()
        if self.watch.has_ended(raw):
            return self.watch.no_answer()
        return DBAPIError.instance(None, None, error, psycopg2.Error, connection_invalidated=gone)

    @contextmanager
    def transaction(self, *, patience: float | None = None, limited: bool = False) -> Iterator[Connection]:
        """Open a transaction that commits at the end and rolls back on any exception.

        `patience`: how long (seconds) it waits for a lock; then Postgres ends it (LockNotAvailable). `limited`: it
        raises NoAnswer if a statement has no answer within the time of an enqueue.
        """
        with self._limited_connection() if limited else self._verbs.connect() as connection:
            try:
                connection.info[UNSAID] = self._begin(connection, patience)
                look.begin(connection)
                yield connection
                unsaid = str(connection.info.pop(UNSAID, ""))
                if not unsaid.startswith("BEGIN"):
                    connection.exec_driver_sql(f"{unsaid}COMMIT")
            except BaseException:
                pools.roll_back(connection)
                raise
            self._look(connection)

    def _begin(self, connection: Connection, patience: float | None = None) -> str:
        settled_in = SETTLED_IN in connection.info
        patiently = lock_timeout(patience, settled_in=settled_in, limited=bool(self._limits))
        return f"BEGIN {READ_COMMITTED}; {end_silent()}{self._limits}; {patiently}"

    @contextmanager
    def _limited_connection(self) -> Iterator[Connection]:
        with self._in_connecting():
            connection = self._verbs.connect()
        with connection:
            raw = connection.connection.dbapi_connection
            self._limited.add(raw)
            try:
                yield connection
            finally:
                self._limited.discard(raw)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction for reads of all surfaces except figures (decision 16):
        rolled back, and planned by look-ups.
        """
        with self._verbs.connect() as connection:
            try:
                connection.info[UNSAID] = f"{self._begin(connection)}{BY_LOOKUPS}; "
                yield connection
            finally:
                pools.roll_back(connection)

    def _look(self, connection: Connection) -> None:
        """Run the post-commit check. Never raises: the sweep and workers' polls make up for what fails here."""
        try:
            logged.committed(connection)
            keys = look.asked(connection)
            if keys and (roles := self._after(connection, keys)):
                self.on_ready(roles)
        except Exception as error:
            logger.warning("What is committed is handed over later: %s", error)

    def _after(self, connection: Connection, keys: Iterable[str]) -> set[str]:
        if not self._limits:
            return look.after(connection, keys)
        try:
            connection.exec_driver_sql(f"BEGIN {READ_COMMITTED}{self._limits}")
            roles = look.after(connection, keys)
            connection.exec_driver_sql("COMMIT")
        except Exception:
            pools.roll_back(connection)
            raise
        return roles

    def look_at(self, keys: Iterable[str]) -> None:
        """Run the check after a commit that was not made on a connection of this pool. Never raises, as `_look`."""
        if not (wanted := set(keys)):
            return
        try:
            with self.statement(limited=True) as connection:
                look.ask(connection, wanted)
        except Exception as error:
            logger.warning("What is committed is handed over later: %s", error)

    def open_connections(self) -> list[Any]:
        """Return the driver's connections that are not closed."""
        return [connection for connection in list(self._open) if not connection.closed]

    def dispose(self) -> None:
        """Close all connections that are not in use."""
        self.watch.close()
        self._drop_spare()
        self.engine.dispose()
        self._verbs.dispose()
        for engine in self._awaited.values():
            awaited.shut(engine)

    def forget_connections(self) -> None:
        """Start with no connections in a forked child: the parent's sockets are its own,
        and its threads may hold their locks.
        """
        let_go(self._open)
        self._open = weakref.WeakSet()
        self._spare = pools.Spare()
        self._limited, self._connecting = set(), {}
        self.engine.dispose(close=False)
        self._verbs.dispose(close=False)
        self._awaited = {}
