"""Additions to SQLAlchemy's pools: a cheaper first connection, a spare one outside the pool, a check of idle ones.

A connection to a server that takes no writes is not kept: a failover behind one address may have led to a standby, and
a default of read-only transactions, which some hosts set while a disk is full, lasts as long as the session.

SQLAlchemy asks the first connection of each pool for its version and settings, one round trip each. The driver knows
them already; a worker makes a pool in each of its processes, and to another region a trip takes a tenth of a second.
"""

from __future__ import annotations

import re
import select
import time
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, DisconnectionError, InvalidatePoolError

from celeriac.store.failures import NO_WRITES, takes_no_writes
from celeriac.store.patience import SETTLED_IN, UNSAID

#: The engine's statements read no hstore, whose type is looked up in three trips for each connection.
NO_HSTORE = {"use_native_hstore": False}


class Spare:
    """The connection kept out of the pool, or none."""

    __slots__ = ("idle", "is_out")

    def __init__(self) -> None:
        self.idle: list[Any] = []
        self.is_out = False

    def take(self) -> Any:
        """Take the connection; None if another thread has it, or it is dead. One that takes no writes is not here: it
        is closed once it has refused one.
        """
        try:
            raw = self.idle.pop()
        except IndexError:
            return None
        try:
            refuse_unfit(raw)
        except InvalidatePoolError:
            raw.close()
            return None
        self.is_out = True
        return raw


def refuse_unfit(connection: Any, record: Any = None, *_: Any) -> None:
    """Make the pool connect anew after a restart of Postgres, or if the connection takes no writes. No answer is due on
    an idle connection, so if there is anything to read, Postgres has ended it.
    """
    if not connection.closed:
        idle = select.poll()
        idle.register(connection.fileno(), select.POLLIN)
        if not idle.poll(0):
            status = connection.get_parameter_status
            is_read_only = status("in_hot_standby") == "on" or status("default_transaction_read_only") == "on"
            if is_read_only and record is not None and SETTLED_IN in record.info:  # not a pooler's
                refuse_unwritable(record)
            return
    raise InvalidatePoolError("Postgres has ended the idle connection")


#: How long (seconds) a connection that takes no writes is used: reads may go on meanwhile.
READ_ONLY_FOR = 1.0

#: The key in a pooled connection's `info` for the time (monotonic) at which that was seen.
_SINCE = "celeriac: takes no writes since"


def is_read_only(connection: Any) -> bool:
    """Return whether a driver's connection takes no writes, as its server reports unasked, and again when it changes.

    A pooler reports it as it was when it first connected.
    """
    status = getattr(connection, "get_parameter_status", None) or connection.info.parameter_status
    return bool(status("in_hot_standby") == "on" or status("default_transaction_read_only") == "on")


def refuse_unwritable(record: Any) -> None:
    """Make the pool connect anew, each `READ_ONLY_FOR` seconds, because this connection takes no writes."""
    since = record.info.setdefault(_SINCE, time.monotonic())
    if time.monotonic() - since >= READ_ONLY_FOR:
        raise DisconnectionError("this connection takes no writes; another one may")


#: The key in a connection's `info` if its handler has said that the transaction is read-only.
SAID_READ_ONLY = "celeriac: its handler wants it read-only"


def leave_read_only(context: ExceptionContext, *, always: bool = False) -> None:
    """Treat a refused write as a lost connection, so that the next attempt connects anew: to the new primary, or once
    writes are allowed.

    `always`: the statement is the engine's, or a pooler answers. A handler's own transaction may be read-only because
    the handler said so, which is the handler's error.
    """
    error, connection = context.original_exception, context.connection
    if connection is None or not takes_no_writes(error) or SAID_READ_ONLY in connection.info:
        return
    if always or is_read_only(connection.connection.driver_connection):
        error.__dict__[NO_WRITES] = True
        context.is_disconnect = True


def ask_nothing(engine: Engine) -> None:
    """Let the engine's dialect take the server's version and its way of escaping strings from the driver, which got
    both while connecting. The schema and the isolation are not queried, because the pool's statements name them.
    """
    dialect: Any = engine.dialect
    dialect._get_server_version_info = _version
    dialect._get_default_schema_name = lambda _: None
    dialect.get_default_isolation_level = lambda _: "READ COMMITTED"
    dialect._set_backslash_escapes = lambda connection: setattr(dialect, "_backslash_escapes", _escapes(connection))


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _version(connection: Connection) -> tuple[int, int]:
    major, minor = divmod(_driver(connection).server_version, 10_000)
    return major, minor


def _escapes(connection: Connection) -> bool:
    return bool(_driver(connection).get_parameter_status("standard_conforming_strings") == "off")


#: SQL that leaves something on its connection when its transaction is over: a setting, a lock, a table, a statement.
_LEAVES = re.compile(
    r"(?:^|;)(?:\s|--[^\n]*\n|/\*.*?\*/)*+(?:SET(?!\s+(?:LOCAL|TRANSACTION|CONSTRAINTS)\b)|LISTEN|LOAD|PREPARE|DECLARE"
    r"|CREATE\s+(?:GLOBAL\s+|LOCAL\s+)?TEMP(?:ORARY)?)\b"
    r"|\bpg_(?:try_)?advisory_lock|\bset_config\s*\((?![^()]*,\s*true\s*\))",
    re.IGNORECASE | re.DOTALL,
)

#: The mark of a connection on which something is left.
_LEFT = "celeriac left"


def drop_what_is_left(engine: Engine) -> None:
    """Close a connection on which a statement has left something, instead of giving it to the next who wants one:
    what a handler sets for its session, or locks there, is not for the tasks after it.
    """
    event.listen(engine, "before_cursor_execute", _note_left)
    event.listen(engine, "checkin", _drop_left)


def _note_left(connection: Connection, _: Any, statement: str, *__: Any) -> None:
    if _LEAVES.search(statement) is not None:
        connection.info[_LEFT] = True


def _drop_left(_: Any, record: Any) -> None:
    if record.info.pop(_LEFT, False):
        record.invalidate()


def roll_back(connection: Connection) -> None:
    """Roll back. A connection that is gone, or cannot even roll back, is dropped; the server rolls back for it."""
    if connection.invalidated or str(connection.info.pop(UNSAID, "")).startswith("BEGIN"):
        return
    try:
        connection.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        connection.invalidate()
