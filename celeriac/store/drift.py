"""Drift: find what the migrations and routines make and a database lacks nevertheless.

A database may be at the code's revision and lack an index somebody dropped, or a column that a restore left out. The
expected schema is read from the migrations' own SQL, so the statement that mends a part is the one that made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, text

from celeriac.store.migrate import ENGINE_VERSIONS
from celeriac.store.routines.apply import scripts

#: The command that mends a routine: each migrate replaces those that differ from this code's.
MIGRATE = "celeriac migrate"

_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_STATEMENT = re.compile(
    r"(?:^\s*|\")((?:CREATE (?:TABLE|(?:UNIQUE )?INDEX)|ALTER TABLE|DROP (?:TABLE|INDEX)) [^;\"]*)", re.MULTILINE
)
_AFTERWARDS = re.compile(r"^afterwards\b.*?^\)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?celeriac\.(\w+)")
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)\s+ON celeriac\.")
_ALTER = re.compile(r"ALTER TABLE celeriac\.(\w+)\s+")
_ADD = re.compile(r"ADD (?:COLUMN (?:IF NOT EXISTS )?|(?=CONSTRAINT ))(.*)", re.DOTALL)
_GONE = re.compile(r"DROP (COLUMN|CONSTRAINT) (?:IF EXISTS )?(\w+)")
_DROP = re.compile(r"DROP (TABLE|INDEX) (?:CONCURRENTLY )?(?:IF EXISTS )?celeriac\.(\w+)")
_OF = re.compile(r"CREATE (?:UNIQUE )?INDEX .*?\sON celeriac\.(\w+)", re.DOTALL)
_ROUTINE = re.compile(r"^CREATE OR REPLACE (FUNCTION|PROCEDURE|VIEW|TRIGGER) (?:celeriac\.)?(\w+)", re.MULTILINE)

_NO_COLUMN = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE")

# An index that is not valid counts as missing, because no query uses it.
THERE = text("""
WITH ours AS (
    SELECT c.oid, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'celeriac'
)
SELECT 'table' AS kind, CAST(relname AS text) AS name FROM ours WHERE relkind IN ('r', 'p')
UNION ALL
SELECT 'view', relname FROM ours WHERE relkind = 'v'
UNION ALL
SELECT 'index', relname FROM ours JOIN pg_index i ON i.indexrelid = ours.oid WHERE i.indisvalid
UNION ALL
SELECT 'column', relname || '.' || a.attname FROM ours JOIN pg_attribute a ON a.attrelid = ours.oid
WHERE relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'constraint', relname || '.' || k.conname FROM ours JOIN pg_constraint k ON k.conrelid = ours.oid
UNION ALL
SELECT 'primary key', relname FROM ours JOIN pg_constraint k ON k.conrelid = ours.oid WHERE k.contype = 'p'
UNION ALL
SELECT 'trigger', g.tgname FROM ours JOIN pg_trigger g ON g.tgrelid = ours.oid WHERE NOT g.tgisinternal
UNION ALL
SELECT CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END, p.proname
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'celeriac'
""")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the schema. `kind`: table, column, index, constraint, primary key, view, function, procedure, trigger.
    `mend`: the statement that makes it, or the command.
    """

    kind: str
    name: str
    mend: str


def drift(connection: Connection) -> list[Part]:
    """Return what is missing, in the order in which it is made; of a table that is missing, no columns."""
    there = {(row.kind, row.name) for row in connection.execute(THERE)}
    missing = [part for part in _engines() if (part.kind, part.name) not in there]
    tables = {part.name for part in missing if part.kind == "table"}
    return [part for part in missing if part.kind == "table" or part.name.partition(".")[0] not in tables]


@cache
def _engines() -> tuple[Part, ...]:
    """Return the expected parts, read once: a process's code stays as it is."""
    return tuple(expected())


def expected(versions: Path = ENGINE_VERSIONS) -> list[Part]:
    """Return all that the engine's migrations and routines make, except partitions of days."""
    parts: dict[tuple[str, str], Part] = {}
    for statement in _statements(versions):
        if dropped := _DROP.match(statement):
            kind, name = dropped[1].lower(), dropped[2]
            parts = {key: part for key, part in parts.items() if key != (kind, name) and not _is_of(part, name, kind)}
        elif altered := _ALTER.match(statement):
            for kind, name in _GONE.findall(statement):
                parts.pop((kind.lower(), f"{altered[1]}.{name}"), None)
        parts |= {(part.kind, part.name): part for part in _parts(statement)}
    routines = [(kind.lower(), name) for script in scripts() for kind, name in _ROUTINE.findall(script)]
    return [*parts.values(), *(Part(kind, name, MIGRATE) for kind, name in dict.fromkeys(routines))]


def _is_of(part: Part, table: str, kind: str) -> bool:
    of = _OF.search(part.mend) if part.kind == "index" else None
    return kind == "table" and table in (of[1] if of else None, part.name.partition(".")[0])


def _statements(versions: Path) -> Iterator[str]:
    """Yield the migrations' statements in order, upwards only; a module's `afterwards` come last."""
    for path in sorted(versions.iterdir()):
        if path.suffix in (".sql", ".py"):
            upwards = path.read_text().partition("def downgrade")[0]
            for script in (_AFTERWARDS.sub("", upwards), "".join(_AFTERWARDS.findall(upwards))):
                yield from (match[1].strip() for match in _STATEMENT.finditer(_COMMENT.sub("", script)))


def _parts(statement: str) -> Iterator[Part]:
    if table := _TABLE.match(statement):
        yield Part("table", table[1], f"{statement};")
        for item in _items(statement) if "PARTITION OF" not in statement else ():
            yield from _of_table(table[1], item)
    elif index := _INDEX.match(statement):
        how = "CONCURRENTLY " if "CONCURRENTLY" in statement else ""
        yield Part("index", index[1], f"DROP INDEX {how}IF EXISTS celeriac.{index[1]}; {statement};")
    elif altered := _ALTER.match(statement):
        for item in _split(statement[altered.end() :]):
            if added := _ADD.match(item):
                yield from _of_table(altered[1], added[1])


def _of_table(table: str, item: str) -> Iterator[Part]:
    word, _, rest = item.partition(" ")
    said = " ".join(item.split())
    if word == "CONSTRAINT":
        yield Part("constraint", f"{table}.{rest.split()[0]}", f"ALTER TABLE celeriac.{table} ADD {said};")
    elif word not in _NO_COLUMN:
        yield Part("column", f"{table}.{word}", f"ALTER TABLE celeriac.{table} ADD COLUMN {said};")
    if "PRIMARY KEY" in item:
        key = said if word == "PRIMARY" else f"PRIMARY KEY ({word})"
        yield Part("primary key", table, f"ALTER TABLE celeriac.{table} ADD {key};")


def _items(statement: str) -> list[str]:
    """Return the items in a table's parentheses."""
    start, depth = statement.index("(") + 1, 1
    for end in range(start, len(statement)):
        depth += {"(": 1, ")": -1}.get(statement[end], 0)
        if depth == 0:
            return _split(statement[start:end])
    return []


def _split(items: str) -> list[str]:
    """Split at the outer commas, not at those within parentheses, brackets or a text."""
    parts, depth, quoted = [""], 0, False
    for character in items:
        quoted ^= character == "'"
        depth += 0 if quoted else {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [item.strip() for item in parts if item.strip()]
