"""What a sender is told of a Postgres that cannot take a row: a line that says what to run, not a page of SQL."""

from __future__ import annotations

from psycopg2 import OperationalError
from psycopg2.errors import InvalidSchemaName, UndefinedColumn, UndefinedFunction, UndefinedTable
from sqlalchemy.exc import DBAPIError

from celeriac.errors import NotReady

_UNMIGRATED = InvalidSchemaName | UndefinedColumn | UndefinedFunction | UndefinedTable


def refuse_unready(error: DBAPIError) -> None:
    """Raises NotReady if that is what Postgres' error says.

    What was lost on the way is none of it: it may have been written.
    """
    said = str(error.orig).strip().partition("\n")[0]
    if isinstance(error.orig, _UNMIGRATED):
        why = f"the database has not the schema of this release ({said}): run `celeriac migrate`"
    elif not _is_of_connecting(error):
        return
    elif "does not exist" in said:
        why = f"{said}: create it and run `celeriac migrate`, or check DATABASE_URL"
    else:
        why = f"Postgres cannot be reached ({said}): start it, or check DATABASE_URL"
    raise NotReady(f"{why}; nothing was enqueued", error) from None


def _is_of_connecting(error: DBAPIError) -> bool:
    """Postgres gives no code before there is a connection; of one that is lost, the error says so."""
    orig = error.orig
    return isinstance(orig, OperationalError) and orig.pgcode is None and not error.connection_invalidated
