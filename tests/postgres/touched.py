"""How many pages each statement touches as it is run, its functions and triggers included; planning is not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from sqlalchemy import create_engine, event

from celeriac.store.connections import Database
from tests.postgres.locks import EXPLAINED, SETTINGS

EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "


@contextmanager
def touched(database: Database) -> Iterator[Counter[str]]:
    """By statement, shared buffers hit and read. Each is run twice before, and that is taken back: the first time a
    connection reads what the catalog says, which it then knows.
    """
    pages: Counter[str] = Counter()
    aside = create_engine(database.url, pool_size=1)

    def before(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, _: bool) -> None:
        settings = SETTINGS.match(statement)
        bare = SETTINGS.sub("", statement).lstrip()
        if not bare.startswith(EXPLAINED):
            return
        raw = cursor.connection
        if raw.get_transaction_status() != TRANSACTION_STATUS_IDLE:
            pages[_key(bare)] += _touched(raw, bare, parameters)
            return
        with aside.connect() as other:
            own = other.connection.driver_connection
            if settings and (said := settings[0].partition("BEGIN")[2].partition(";")[2] or settings[0]).startswith(
                "SET"
            ):
                own.cursor().execute(said)
            pages[_key(bare)] += _touched(own, bare, parameters)
            other.rollback()

    pool = database._verbs
    event.listen(pool, "before_cursor_execute", before)
    try:
        yield pages
    finally:
        event.remove(pool, "before_cursor_execute", before)
        aside.dispose()


def _touched(raw: Any, statement: str, parameters: Any) -> int:
    with raw.cursor() as cursor:
        for _ in range(2):
            cursor.execute("SAVEPOINT touched")
            cursor.execute(EXPLAIN + statement, parameters)
            ((root,),) = cursor.fetchone()
            cursor.execute("ROLLBACK TO touched; RELEASE touched")
    return _of(root["Plan"]) + _written(root["Plan"])


def _of(node: Any) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _written(node: Any, top: bool = True) -> int:
    """What CTEs that only write touch comes after the root has ended."""
    own = _of(node) if node["Node Type"] == "ModifyTable" and not top else 0
    return own or sum(_written(one, False) for one in node.get("Plans", ()))


def _key(statement: str) -> str:
    return " ".join(statement.split())[:160]
