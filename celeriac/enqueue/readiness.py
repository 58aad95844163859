"""What is told of a Postgres that cannot do anything yet: a line that says what to run, not a page of SQL."""

from __future__ import annotations

from psycopg2 import OperationalError
from psycopg2.errors import (
    InvalidSchemaName,
    ReadOnlySqlTransaction,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedTable,
    UntranslatableCharacter,
)
from sqlalchemy.exc import DBAPIError

from celeriac.errors import NotReady

_UNMIGRATED = InvalidSchemaName | UndefinedColumn | UndefinedFunction | UndefinedTable


def refuse_unready(error: DBAPIError) -> None:
    """Raises NotReady if that is what Postgres' error says.

    What was lost on the way is none of it: it may have been written.
    """
    if (why := why_unready(error)) is not None:
        raise NotReady(f"{why}; nothing was enqueued", error) from None


def why_unready(error: DBAPIError) -> str | None:
    """What to run before Postgres can do anything, if that is what its error says."""
    said = str(error.orig).strip().partition("\n")[0]
    if isinstance(error.orig, _UNMIGRATED):
        return f"the database has not the schema of this release ({said}): run `celeriac migrate`"
    if isinstance(error.orig, ReadOnlySqlTransaction):
        return f"Postgres takes no writes ({said}): run `celeriac check`, which says why"
    if isinstance(error.orig, UntranslatableCharacter):
        return f"the database's encoding lacks a character ({said}): run `celeriac check`, which says what to do"
    if not _is_of_connecting(error):
        return None
    if "does not exist" in said:
        return f"{said}: create it and run `celeriac migrate`, or check DATABASE_URL"
    return f"Postgres cannot be reached ({said}): start it, or check DATABASE_URL"


def _is_of_connecting(error: DBAPIError) -> bool:
    """Postgres gives no code before there is a connection; of one that is lost, the error says so."""
    orig = error.orig
    return isinstance(orig, OperationalError) and orig.pgcode is None and not error.connection_invalidated
