"""Explain why Postgres is not ready, in a line that says what to run, not in a page of SQL."""

from __future__ import annotations

from psycopg2 import OperationalError, errorcodes
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

from celeriac.errors import NotReady

_UNMIGRATED = (
    errorcodes.INVALID_SCHEMA_NAME, errorcodes.UNDEFINED_COLUMN, errorcodes.UNDEFINED_FUNCTION,
    errorcodes.UNDEFINED_TABLE,
)  # fmt: skip


def refuse_unready(error: Exception) -> None:
    """Raise NotReady if this error, of whatever driver, shows that Postgres is not ready. A connection that was lost
    during the statement does not count, because the row may have been written.
    """
    if (why := why_unready(error)) is not None:
        raise NotReady(f"{why}; nothing was enqueued", error) from None


def why_unready(error: Exception) -> str | None:
    """Return what to run before Postgres can work, if its error shows that it is not ready; else None."""
    if isinstance(error, NoConnection):
        return f"Postgres cannot be reached in time ({str(error).partition(' (')[0]}): check DATABASE_URL"
    orig = getattr(error, "orig", error)
    code = getattr(orig, "pgcode", None) or getattr(orig, "sqlstate", None)
    said = str(orig).strip().partition("\n")[0]
    if code in _UNMIGRATED:
        return f"the database has not the schema of this release ({said}): run `celeriac migrate`"
    if code == errorcodes.READ_ONLY_SQL_TRANSACTION:
        return f"Postgres takes no writes ({said}): run `celeriac check`, which says why"
    if code == errorcodes.UNTRANSLATABLE_CHARACTER:
        return f"the database's encoding lacks a character ({said}): run `celeriac check`, which says what to do"
    if not isinstance(error, DBAPIError) or not _is_of_connecting(error):
        return None
    if "does not exist" in said:
        return f"{said}: create it and run `celeriac migrate`, or check DATABASE_URL"
    return f"Postgres cannot be reached ({said}): start it, or check DATABASE_URL"


def _is_of_connecting(error: DBAPIError) -> bool:
    """Return whether connecting failed: Postgres then gives no code, and a lost connection is marked in the error."""
    orig = error.orig
    return isinstance(orig, OperationalError) and orig.pgcode is None and not error.connection_invalidated
