"""Mend: make again what somebody dropped of the engine's tables, so that work goes on meanwhile.

Tables, columns and checks are made in the migration's transaction, where a statement that would wait for others gives
up in time. Indexes come after it: they are built beside all writes, on each partition by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlalchemy import Connection, Engine, text

from celeriac.store.drift import Part, drift

#: How long (milliseconds) a brief statement waits for its lock: all who come after it wait as long.
LOCK_MS = 2_000

_INDEX = re.compile(
    r"CREATE (UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?\w+\s+ON celeriac\.(\w+)\s+(.*);", re.DOTALL
)
_KEY = re.compile(r"ALTER TABLE celeriac\.(\w+) ADD (?:CONSTRAINT (\w+) )?(PRIMARY KEY|UNIQUE) (\(.*\));", re.DOTALL)

PARTITIONS = text("""
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass('celeriac.' || :table) ORDER BY c.relname
""")

IS_PARTITIONED = text("""
SELECT EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass('celeriac.' || :table))
""")

# Beside reads and writes.
NOT_VALID = text("""
SELECT 'ALTER TABLE celeriac.' || quote_ident(c.relname) || ' VALIDATE CONSTRAINT ' || quote_ident(k.conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = to_regnamespace('celeriac') AND k.contype = 'c' AND NOT k.convalidated AND NOT c.relispartition
ORDER BY 1
""")


def tables(connection: Connection) -> None:
    """Make missing tables, columns and checks, in the caller's transaction, which limits how long they wait."""
    for part in drift(connection):
        if part.kind == "constraint" and not _KEY.match(part.mend):
            check = part.mend.removesuffix(";").removesuffix(" NOT VALID")
            connection.exec_driver_sql(check.replace("%", "%%") + " NOT VALID")
        elif part.kind in ("table", "column"):
            connection.exec_driver_sql(part.mend.replace("%", "%%"))


def indexes(engine: Engine) -> None:
    """Make missing indexes and keys, and validate checks; each statement by itself, and none keeps others waiting."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for part in drift(connection):
            for statement in _statements(connection, part):
                # What is built concurrently may wait for open transactions, since nobody waits for it.
                brief = "" if "CONCURRENTLY" in statement else f"SET LOCAL lock_timeout = {LOCK_MS}; "
                connection.exec_driver_sql(brief + statement.replace("%", "%%"))
        for check in connection.execute(NOT_VALID).scalars().all():
            connection.exec_driver_sql(check)


def _statements(connection: Connection, part: Part) -> Iterator[str]:
    if made := _INDEX.match(part.mend):
        unique, table, rest = made.groups(default="")
        if connection.execute(IS_PARTITIONED, {"table": table}).scalar_one():
            yield from _of_partitions(connection, part.name, unique, table, rest)
        else:
            yield from _concurrently(part.name, unique, table, rest)
    elif key := _KEY.match(part.mend):
        table, name, kind, columns = key[1], key[2] or f"{key[1]}_pkey", key[3], key[4]
        yield from _concurrently(name, "UNIQUE ", table, columns)
        yield f"ALTER TABLE celeriac.{table} ADD CONSTRAINT {name} {kind} USING INDEX {name}"


def _concurrently(name: str, unique: str, table: str, rest: str) -> Iterator[str]:
    """Yield what makes an index anew: an attempt that was broken off has left one that is not valid."""
    yield f"DROP INDEX CONCURRENTLY IF EXISTS celeriac.{name}"
    yield f"CREATE {unique}INDEX CONCURRENTLY {name} ON celeriac.{table} {rest}"


def _of_partitions(connection: Connection, name: str, unique: str, table: str, rest: str) -> Iterator[str]:
    """Yield the same for a partitioned table: its index is valid once each partition's is attached."""
    yield f"DROP INDEX IF EXISTS celeriac.{name}"
    yield f"CREATE {unique}INDEX {name} ON ONLY celeriac.{table} {rest}"
    for partition in connection.execute(PARTITIONS, {"table": table}).scalars().all():
        own = f"{partition}_{name}"
        yield from _concurrently(own, unique, partition, rest)
        yield f"ALTER INDEX celeriac.{name} ATTACH PARTITION celeriac.{own}"
