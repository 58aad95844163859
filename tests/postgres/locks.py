"""How many locks each statement takes: of tables, partitions and indexes, those of its plan with those of its run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import create_engine, event

from celeriac.store.connections import Database

HELD = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"

#: What goes before a statement, in the same round trip.
SETTINGS = re.compile(r"^((BEGIN|SET)\s[^;]*;\s*)+")

#: What is run once more where it is a transaction by itself, which is over when somebody could count.
EXPLAINED = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")


@contextmanager
def counted(database: Database) -> Iterator[dict[str, int]]:
    """By statement, what it added at most."""
    taken: dict[str, int] = {}
    aside = create_engine(database.url)

    def before(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, _: bool) -> None:
        raw = cursor.connection
        if statement.startswith("BEGIN ") or raw.get_transaction_status() != TRANSACTION_STATUS_IDLE:
            context.held = _held(raw)
            return
        statement = SETTINGS.sub("", statement).lstrip()
        if statement.startswith(EXPLAINED):
            with aside.connect() as other:
                own = other.connection.cursor()
                own.execute(HELD)
                held = own.fetchone()[0]
                own.execute(f"EXPLAIN ANALYZE {statement}", parameters)
                _note(taken, statement, _held(own.connection) - held)
                other.rollback()

    def after(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, _: bool) -> None:
        if hasattr(context, "held"):
            _note(taken, statement, _held(cursor.connection) - context.held)

    pool = database._verbs
    event.listen(pool, "before_cursor_execute", before)
    event.listen(pool, "after_cursor_execute", after)
    try:
        yield taken
    finally:
        event.remove(pool, "before_cursor_execute", before)
        event.remove(pool, "after_cursor_execute", after)
        aside.dispose()


def _held(raw: Any) -> int:
    with raw.cursor() as cursor:
        cursor.execute(HELD)
        return int(cursor.fetchone()[0])


def _note(taken: dict[str, int], statement: str, n: int) -> None:
    key = " ".join(SETTINGS.sub("", statement).split())[:200]
    taken[key] = max(n, taken.get(key, 0))
