"""Mend: make again what somebody dropped of the engine's tables, so that work goes on meanwhile.

Tables, columns and checks are made in the migration's transaction, where a statement that would wait for others gives
up in time. Indexes come after it: they are built beside all writes, on each partition by itself. What Postgres refuses
to make, mostly as the data forbids it, is logged and stays missing, and all else is made.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from celeriac.store.drift import Part, drift
from celeriac.store.failures import in_a_line, is_cut_off, is_gone, is_locked

logger = logging.getLogger(__name__)

#: Milliseconds that a brief statement waits for its lock: every later statement waits as long.
LOCK_MS = 2_000

_INDEX = re.compile(
    r"CREATE (UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?\w+\s+ON celeriac\.(\w+)\s+(.*);", re.DOTALL
)
_KEY = re.compile(r"ALTER TABLE celeriac\.(\w+) ADD (?:CONSTRAINT (\w+) )?(PRIMARY KEY|UNIQUE) (\(.*\));", re.DOTALL)

IS_PARTITIONED = text("""
SELECT EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass('celeriac.' || :table))
""")

# A check that an operator left NOT VALID has no such comment.
NOT_VALID = text("""
SELECT CAST(c.relname AS text) AS table, CAST(k.conname AS text) AS name
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = to_regnamespace('celeriac') AND k.contype = 'c' AND NOT k.convalidated AND NOT c.relispartition
    AND obj_description(k.oid, 'pg_constraint') = :unfinished
ORDER BY 1, 2
""")

#: The comment on a check, and on the index of a partitioned table before its definition, until it is complete. What has
#: it was made here: a migrate that was broken off is continued by the next.
UNFINISHED = "celeriac migrate completes this"

# An index of that name that is not valid, and was begun here by the same definition.
IS_BEGUN = text("""
SELECT EXISTS (
    SELECT FROM pg_index WHERE indexrelid = to_regclass('celeriac.' || :name)
        AND obj_description(indexrelid, 'pg_class') = :begun AND NOT indisvalid
)
""")

# The next partition without an index that is attached to this one.
LACKING = text("""
SELECT CAST(c.relname AS text) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass('celeriac.' || :table) AND c.relname > CAST(:after AS name) AND NOT EXISTS (
    SELECT FROM pg_inherits attached JOIN pg_index x ON x.indexrelid = attached.inhrelid
    WHERE attached.inhparent = to_regclass('celeriac.' || :name) AND x.indrelid = c.oid
)
ORDER BY c.relname LIMIT 1
""")

IS_PARTITION = text("""
SELECT EXISTS (
    SELECT FROM pg_inherits WHERE inhrelid = to_regclass('celeriac.' || :partition)
        AND inhparent = to_regclass('celeriac.' || :table)
)
""")

# A partition's index that is complete and defined as its parent's: it only has to be attached.
IS_BUILT = text("""
SELECT EXISTS (
    SELECT FROM pg_index own JOIN pg_index parent ON parent.indexrelid = to_regclass('celeriac.' || :name)
    WHERE own.indexrelid = to_regclass('celeriac.' || :own) AND own.indisvalid
        AND own.indrelid = to_regclass('celeriac.' || :partition) AND own.indisunique = parent.indisunique
        AND substring(pg_get_indexdef(own.indexrelid) FROM ' USING .*')
            = substring(pg_get_indexdef(parent.indexrelid) FROM ' USING .*')
)
""")


def tables(connection: Connection) -> None:
    """Make missing tables, columns and checks, in the caller's transaction, which limits how long they wait.

    Raises the error of a lock that somebody else holds.
    """
    for part in drift(connection):
        if statements := [*_brief(part)]:
            with _reported(f"make the {part.kind} {part.name}"), connection.begin_nested():
                _run(connection, *statements)


def indexes(engine: Engine) -> None:
    """Make missing indexes and keys, and validate the checks that were made here; each statement by itself, and none
    keeps others waiting. Raises as `tables` does.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for part in drift(connection):
            with _reported(f"make the {part.kind} {part.name}"):
                _build(connection, part)
        for table, name in connection.execute(NOT_VALID, {"unfinished": UNFINISHED}).all():
            with _reported(f"validate the constraint {table}.{name}"):
                _run(connection, f"ALTER TABLE celeriac.{table} VALIDATE CONSTRAINT {name}")
                _run(connection, f"COMMENT ON CONSTRAINT {name} ON celeriac.{table} IS NULL")


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Log what Postgres refuses. If somebody has locked what is needed, or Postgres is away, the next attempt may do
    all: that is raised.
    """
    try:
        yield
    except DBAPIError as error:
        if is_locked(error) or (is_gone(error) and not is_cut_off(error)):
            raise
        logger.error("Migrate could not %s: %s", what, in_a_line(error))


def _run(connection: Connection, *statements: str) -> None:
    """Run these statements at once. One that builds concurrently may wait for others, since nobody waits for it."""
    connection.exec_driver_sql("; ".join(statements).replace("%", "%%"))


def _briefly(connection: Connection, *statements: str) -> None:
    """Run these statements in one transaction that soon gives up where somebody has locked what they need."""
    _run(connection, f"SET LOCAL lock_timeout = {LOCK_MS}", *statements)


def _brief(part: Part) -> Iterator[str]:
    """Yield what makes a table, a column, or a check, which is validated later."""
    if part.kind == "constraint" and not _KEY.match(part.mend):
        yield part.mend.removesuffix(";").removesuffix(" NOT VALID") + " NOT VALID"
        table, name = part.name.split(".")
        yield f"COMMENT ON CONSTRAINT {name} ON celeriac.{table} IS '{UNFINISHED}'"
    elif part.kind in ("table", "column"):
        yield part.mend


def _build(connection: Connection, part: Part) -> None:
    if made := _INDEX.match(part.mend):
        unique, table, rest = made.groups(default="")
        if connection.execute(IS_PARTITIONED, {"table": table}).scalar_one():
            _build_partitioned(connection, part.name, unique, table, rest)
        else:
            _build_beside(connection, part.name, unique, table, rest)
    elif key := _KEY.match(part.mend):
        table, name, kind, columns = key[1], key[2] or f"{key[1]}_pkey", key[3], key[4]
        _build_beside(connection, name, "UNIQUE ", table, columns)
        _briefly(connection, f"ALTER TABLE celeriac.{table} ADD CONSTRAINT {name} {kind} USING INDEX {name}")


def _build_beside(connection: Connection, name: str, unique: str, table: str, rest: str) -> None:
    """Build an index anew: an attempt that was broken off has left one that is not valid."""
    _run(connection, f"DROP INDEX CONCURRENTLY IF EXISTS celeriac.{name}")
    _run(connection, f"CREATE {unique}INDEX CONCURRENTLY {name} ON celeriac.{table} {rest}")


def _build_partitioned(connection: Connection, name: str, unique: str, table: str, rest: str) -> None:
    """Build the index of a partitioned table, which is valid once each partition's is attached.

    Builds last, and days come and go meanwhile: which partition is next is read before each. One that is made meanwhile
    has its index from Postgres.
    """
    begun = f"{UNFINISHED}: {unique}{rest}"
    if not (
        connection.execute(IS_BEGUN, {"name": name, "begun": begun}).scalar_one()
        and _next_lacking(connection, name, table, after="")
    ):
        _briefly(
            connection,
            f"DROP INDEX IF EXISTS celeriac.{name}",
            f"CREATE {unique}INDEX {name} ON ONLY celeriac.{table} {rest}",
            f"COMMENT ON INDEX celeriac.{name} IS {_literal(begun)}",
        )
    partition = ""
    while partition := _next_lacking(connection, name, table, after=partition):
        try:
            _build_of_partition(connection, name, unique, partition, rest)
        except DBAPIError as error:
            if is_gone(error) or _is_partition(connection, partition, table):
                raise
    _briefly(connection, f"COMMENT ON INDEX celeriac.{name} IS NULL")


def _build_of_partition(connection: Connection, name: str, unique: str, partition: str, rest: str) -> None:
    own = f"{partition}_{name}"
    if not connection.execute(IS_BUILT, {"name": name, "own": own, "partition": partition}).scalar_one():
        _build_beside(connection, own, unique, partition, rest)
    _briefly(connection, f"ALTER INDEX celeriac.{name} ATTACH PARTITION celeriac.{own}")


def _next_lacking(connection: Connection, name: str, table: str, *, after: str) -> str:
    return connection.execute(LACKING, {"name": name, "table": table, "after": after}).scalar() or ""


def _is_partition(connection: Connection, partition: str, table: str) -> bool:
    return bool(connection.execute(IS_PARTITION, {"partition": partition, "table": table}).scalar_one())


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
