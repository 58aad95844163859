"""What Postgres says when it fails, and what may be tried again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg2
from psycopg2.errors import DeadlockDetected
from psycopg2.extensions import QueryCanceledError, TransactionRollbackError
from sqlalchemy.exc import DBAPIError

logger = logging.getLogger(__name__)

T = TypeVar("T")


def is_gone(error: BaseException) -> bool:
    """Whether it says that Postgres went away (restart, network), not that the statement was wrong."""
    if not isinstance(error, DBAPIError):
        return False
    code: Any = getattr(error.orig, "pgcode", None)
    if code is None:  # the driver's own: of a broken connection, or of a value it cannot send
        return error.connection_invalidated or not isinstance(error.orig, psycopg2.ProgrammingError)
    return bool(error.connection_invalidated or code[:2] in ("57", "08"))


def is_nobodys_fault(error: BaseException) -> bool:
    """Whether the same transaction may succeed another time: Postgres went away, or ended it for another's sake."""
    orig = getattr(error, "orig", None)
    if isinstance(orig, QueryCanceledError):  # a time limit on the statement
        return False
    return is_gone(error) or isinstance(orig, TransactionRollbackError)


#: How often a transaction is tried that Postgres ends to break a deadlock; each time it has waited a second for it.
TRIES = 5


def past_deadlocks(act: Callable[[], T]) -> T:
    """`act` is one whole transaction: ended to break a deadlock with somebody else's, it is tried again."""
    for _ in range(TRIES - 1):
        try:
            return act()
        except DBAPIError as error:
            if not isinstance(error.orig, DeadlockDetected):
                raise
            logger.info("Met a deadlock with another transaction; trying again")
    return act()


#: How long (seconds) a worker outlasts a Postgres that is away, and how often it tries.
PATIENCE = 120.0
RETRY_EVERY = 0.25


def outlasting(act: Callable[[], T], what: str) -> T:
    """Tries again while Postgres is away, and raises what it last said if it stays away for `PATIENCE`.

    Only for what is safe to repeat: verbs fenced by a token are.
    """
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except DBAPIError as error:
            if not is_gone(error) or time.monotonic() > give_up:
                raise
            logger.warning("Postgres is away; trying to %s again in %g s", what, RETRY_EVERY)
            time.sleep(RETRY_EVERY)
