"""Classify errors of Postgres, and retry what may be retried."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg2
from psycopg2 import errorcodes
from psycopg2.errors import DeadlockDetected, LockNotAvailable
from psycopg2.extensions import QueryCanceledError, TransactionRollbackError
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

logger = logging.getLogger(__name__)

T = TypeVar("T")


def code_of(orig: object) -> str | None:
    """Return the SQLSTATE of a driver's error (psycopg2 and psycopg name it differently); None if the error is not the
    server's.
    """
    return getattr(orig, "pgcode", None) or getattr(orig, "sqlstate", None)


def _is(orig: object, kind: type[BaseException] | tuple[type[BaseException], ...], *codes: str) -> bool:
    """Return whether the error is of this class of psycopg2's, or its SQLSTATE begins with one of these."""
    return isinstance(orig, kind) or (code_of(orig) or "none").startswith(codes)


def _is_named(orig: object, *names: str) -> bool:
    """Return whether the error is of the class that all drivers have under this name."""
    return any(kind.__name__ in names for kind in type(orig).__mro__)


def is_operational(error: object) -> bool:
    """Return whether it is an OperationalError: drivers raise it, among others, if they get no connection."""
    return _is_named(error, "OperationalError")


def is_gone(error: BaseException) -> bool:
    """Return whether the error means that Postgres went away (restart, network), not that the statement was wrong."""
    if not isinstance(error, DBAPIError):
        return False
    code = code_of(error.orig)
    if code is None:  # the driver's own error, about a broken connection or a value it cannot send
        return error.connection_invalidated or not _is_named(error.orig, "ProgrammingError", "DataError")
    return bool(error.connection_invalidated or code[:2] in ("57", "08"))


#: Texts of the driver or the server about a server that is absent, starting or shutting down.
_DOWN = ("Connection refused", "No such file or directory", "is starting up", "is shutting down", "recovery mode")


def is_down(error: BaseException) -> bool:
    """Return whether the error shows that Postgres serves nobody just now; one that does not answer may serve
    others.
    """
    return is_gone(error) and any(words in str(error) for words in _DOWN)


def is_locked(error: BaseException) -> bool:
    """Return whether the error is due to another transaction's lock: the wait was too long, or ended in a deadlock."""
    return _is(getattr(error, "orig", None), (LockNotAvailable, DeadlockDetected), "55P03", "40P01")


def is_cut_off(error: BaseException) -> bool:
    """Return whether the statement was ended because it took too long."""
    return _is(getattr(error, "orig", None), QueryCanceledError, "57014")


def is_refused_for_now(error: BaseException) -> bool:
    """Return whether Postgres refused the statement for lack of means (disk, memory, connections: SQLSTATE class 53),
    of time, or of a lock.
    """
    code = code_of(getattr(error, "orig", None)) or ""
    return code.startswith("53") or is_cut_off(error) or is_locked(error)


def takes_no_writes(orig: object) -> bool:
    """Return whether the driver's error says that the transaction is read-only."""
    return code_of(orig) == errorcodes.READ_ONLY_SQL_TRANSACTION


#: The attribute that marks an error of a server that takes no writes: a standby, or one where a default forbids them.
NO_WRITES = "of_celeriac_no_writes"


def blame(context: ExceptionContext) -> None:
    """Mark errors of the engine's own database: a handler may use other databases, whose errors are its own."""
    context.original_exception.__dict__["of_celeriac"] = True


def quote_nothing(context: ExceptionContext) -> None:
    """Remove from errors of the engine's own statements what Postgres quotes of a call: no log or caller may see it."""
    error, wrapped = context.original_exception, context.sqlalchemy_exception
    if wrapped is not None and isinstance(error, psycopg2.Error) and error.pgcode is not None:
        unquoted(error)
        wrapped.args = (f"({type(error).__module__}.{type(error).__name__}) {error}",)


def unquoted(error: psycopg2.Error) -> None:
    """Cut the error to its first line: DETAIL and CONTEXT quote rows. For bad data (class 22) that line does, too."""
    said = str(error).partition("\n")[0]
    is_bad_data = str(error.pgcode).startswith("22")
    error.args = (said.partition('"')[0].rstrip(": ") if is_bad_data else said,)


#: Texts of a server that has no connection left, for anybody or for this login.
_FULL = ("too many clients", "too many connections", "remaining connection slots")


def is_full(error: BaseException) -> bool:
    """Return whether Postgres has no connection left."""
    return any(words in str(getattr(error, "orig", error)) for words in _FULL)


#: Beginnings of the driver's texts if connecting failed: a revoked login, a wrong password, a line of pg_hba, a proxy
#: that refuses, an unknown host name, an expired certificate, no file descriptor left.
_NOT_CONNECTED = (
    "connection to server at ", "connection to server on socket ", "connection failed", "could not translate host name",
    "could not connect to server", "could not create socket", "could not look up", "failed to resolve host",
    "connection timeout expired",
)  # fmt: skip


def is_turned_away(error: BaseException | None) -> bool:
    """Return whether a handler met the engine's Postgres refusing new connections (open ones may live), or all writes.

    Such an error comes from the driver before there is a connection, so without a statement and a code, or from the
    server with a code for it: a statement's own error may have the same words in a value.
    """
    return any(_turns_away(failure) for failure in _of_celeriac(error))


def _turns_away(failure: Any) -> bool:
    orig, code = failure.orig, code_of(failure.orig)
    if NO_WRITES in orig.__dict__:
        return True
    if not is_operational(orig):
        return False
    if code is None and failure.statement is None:
        # Without a file descriptor left the driver's error may have no text.
        is_mute = not str(orig).strip() and not failure.connection_invalidated
        return is_mute or str(orig).startswith(_NOT_CONNECTED) or any(words in str(orig) for words in _FULL)
    return code in (None, errorcodes.TOO_MANY_CONNECTIONS) and any(words in str(orig) for words in _FULL)


def is_restart(error: BaseException | None) -> bool:
    """Return whether a handler met the engine's Postgres going away.

    A time limit on the handler's own statement does not count.
    """
    return any(is_gone(failure) and not is_cut_off(failure) for failure in _of_celeriac(error))


def _of_celeriac(error: BaseException | None) -> Iterator[Any]:
    """Yield errors of the engine's own Postgres, also those wrapped in an error of a handler's.

    A handler's error may be its own cause (`raise error from error`), and its class may run any code when an attribute
    is read.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if getattr(_field(error, "orig"), "of_celeriac", False):
            yield error
        error = object.__getattribute__(error, "__cause__") or _field(error, "because")


def _field(error: BaseException, name: str) -> Any:
    return object.__getattribute__(error, "__dict__").get(name)


def is_retryable(error: BaseException) -> bool:
    """Return whether the same transaction may succeed another time: Postgres went away, or ended it for another's sake.

    A time limit or lock timeout is the fault of the statement that met it. One that ends the COMMIT is nobody's fault,
    and the transaction may be tried again.
    """
    orig = getattr(error, "orig", None)
    if _is(orig, (QueryCanceledError, LockNotAvailable), "57014", "55P03"):
        return isinstance(error, DBAPIError) and error.statement is None
    return is_gone(error) or _is(orig, TransactionRollbackError, "40")


#: Number of attempts for a transaction that Postgres ends to break a deadlock; each has waited a second before that.
TRIES = 5


def retry_deadlocks(act: Callable[[], T]) -> T:
    """Call `act`, one whole transaction; if Postgres ends it to break a deadlock, call it again."""
    for _ in range(TRIES - 1):
        try:
            return act()
        except DBAPIError as error:
            if not isinstance(error.orig, DeadlockDetected):
                raise
            logger.info("Met a deadlock with another transaction; trying again")
    return act()


def is_passing(error: BaseException) -> bool:
    """Return whether the error passes by itself: Postgres is away, busy or slow, or somebody has locked something."""
    return is_gone(error) or is_refused_for_now(error) or isinstance(error, NoConnection)


def in_a_line(error: BaseException) -> str:
    """Return the error's kind and the first line of its text."""
    orig = getattr(error, "orig", None) or error
    return f"{type(orig).__name__}: {str(orig).partition(chr(10))[0]}"


def log_error(logger: logging.Logger, error: BaseException, message: str, *args: object) -> None:
    """Log the message in one line if the error passes by itself, otherwise with a traceback."""
    if is_passing(error):
        logger.warning(f"{message}: %s", *args, in_a_line(error), stacklevel=2)
    else:
        logger.error(message, *args, exc_info=error, stacklevel=2)


#: Seconds between two log lines about waiting for Postgres; attempts are made every `RETRY_EVERY`.
SAY_EVERY = 5.0


class Away:
    """Logs that this process waits for Postgres, and why: at once, then every `SAY_EVERY` seconds."""

    def __init__(self) -> None:
        self._next = -math.inf

    def say(self, error: BaseException) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAY_EVERY
        # The driver's text names the server, but not the password.
        said = str(getattr(error, "orig", error)).partition("\n")[0]
        why = "somebody's open transaction has locked what is to be written" if is_locked(error) else said
        logger.warning("Waiting for Postgres: %s", why)


def once_postgres_serves(act: Callable[[], T], may_wait: Callable[[], None]) -> T:
    """Retry for as long as Postgres is away, or somebody's lock outlasts the patience: `act` has to be safe to repeat.

    `may_wait` is called before each attempt; what it raises ends the waiting.
    """
    away = Away()
    while True:
        may_wait()
        try:
            return act()
        except DBAPIError as error:
            if not is_gone(error) and not is_locked(error):
                raise
            away.say(error)
            time.sleep(RETRY_EVERY)


#: Seconds for which a worker retries while Postgres is away, and seconds between two attempts.
PATIENCE = 120.0
RETRY_EVERY = 0.25


def retry_while_away(act: Callable[[], T], what: str) -> T:
    """Retry while Postgres is away, and raise its last error if it stays away for `PATIENCE`; after a deadlock as
    `retry_deadlocks` does.

    It is for whole transactions that are safe to repeat, as verbs fenced by a token are.
    """
    give_up, tries = time.monotonic() + PATIENCE, TRIES
    while True:
        try:
            return act()
        except DBAPIError as error:
            if isinstance(error.orig, DeadlockDetected) and tries > 1:
                tries -= 1
                logger.info("Met a deadlock with another transaction; trying again")
                continue
            if not is_gone(error) or time.monotonic() > give_up:
                raise
            logger.warning("Postgres is away; trying to %s again in %g s", what, RETRY_EVERY)
            time.sleep(RETRY_EVERY)
