"""Apply the routines: only what differs from before is replaced, because each replacement takes a lock.

Replacing a view waits for all its readers, and new readers wait for it. So a table has, for each routine, the text it
was last made from and what Postgres made of it; a routine for which both are unchanged is left alone. Somebody else's
replacement is undone. With a view all routines made after it are replaced, since they may use its columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Connection, text

#: The scripts, each after those it needs.
NAMES = (
    "ids", "history", "days", "hand_over", "barriers", "leases", "release", "rooms", "walks", "worker_tasks", "cancel",
    "arguments", "enqueue", "policies", "audit", "limits", "schedules", "window", "backlog", "rests",
)  # fmt: skip

#: A statement up to its semicolon; one in a comment, in a text, or between dollars does not end it.
_STATEMENT = re.compile(r"(?:--[^\n]*|\$\$.*?\$\$|'[^']*'|[^;])+?;", re.DOTALL)

_MADE = re.compile(r"^CREATE OR REPLACE (FUNCTION|PROCEDURE|VIEW|TRIGGER) (?:celeriac\.)?(\w+)", re.MULTILINE)

# All overloads that Postgres has under each name: an old one beside a new one might be called.
THERE = text("""
WITH there AS (
    SELECT 'routine' AS kind, proname AS name, pg_get_functiondef(oid) AS definition
    FROM pg_proc WHERE pronamespace = to_regnamespace('celeriac') AND prokind IN ('f', 'p')
    UNION ALL
    SELECT 'view', relname, pg_get_viewdef(oid)
    FROM pg_class WHERE relnamespace = to_regnamespace('celeriac') AND relkind = 'v'
    UNION ALL
    SELECT 'trigger', tgname, pg_get_triggerdef(g.oid) || CAST(g.tgenabled AS text)
    FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
    WHERE relnamespace = to_regnamespace('celeriac') AND NOT tgisinternal
        AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)
)
SELECT kind || ' ' || name AS name, md5(string_agg(definition, '' ORDER BY definition)) AS made FROM there GROUP BY 1
""")

RECORDED = text("SELECT name, text, made FROM celeriac.routines")

RECORD = text("""
INSERT INTO celeriac.routines (name, text, made)
SELECT * FROM unnest(CAST(:names AS text[]), CAST(:texts AS text[]), CAST(:made AS text[]))
ON CONFLICT (name) DO UPDATE SET text = excluded.text, made = excluded.made
""")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a script. `names`: the routines it makes, by kind and name; none if it makes no routine."""

    sql: str
    names: tuple[str, ...]


def scripts() -> Iterator[str]:
    """Yield the scripts; each can be applied again and again."""
    for name in NAMES:
        yield (Path(__file__).parent / f"{name}.sql").read_text()


def replace_stale(connection: Connection) -> list[str]:
    """Bring functions, views and triggers to this code's, and return the names of those that were replaced."""
    texts, there = _texts(), _there(connection)
    recorded = {row.name: (row.text, row.made) for row in connection.execute(RECORDED)}
    stale = {name for name, said in texts.items() if recorded.get(name) != (said, there.get(name))}
    replaced: list[str] = []
    for script in scripts():
        replaced += _apply(connection, list(statements(script)), stale)
        if any(name.startswith("view ") for name in replaced):
            stale |= texts.keys()
    if replaced:
        there = _there(connection)
        names = sorted(texts)
        made = [there[name] for name in names]
        connection.execute(RECORD, {"names": names, "texts": [texts[name] for name in names], "made": made})
    return replaced


def _apply(connection: Connection, script: list[Statement], stale: set[str]) -> list[str]:
    """Apply one script. Statements that make no routine (rights, types, drops) run with any that is replaced."""
    if not any(stale.intersection(statement.names) for statement in script):
        return []
    replaced: list[str] = []
    for statement in script:
        if statement.names and not stale.intersection(statement.names):
            continue
        connection.exec_driver_sql(statement.sql.replace("%", "%%"))
        replaced += statement.names
        if any(name.startswith("view ") for name in statement.names):
            stale.update(name for other in script for name in other.names)
    return replaced


def statements(script: str) -> Iterator[Statement]:
    """Yield the statements of a script."""
    for match in _STATEMENT.finditer(script):
        made = _MADE.findall(match[0])
        yield Statement(match[0], tuple(f"{_kind(kind)} {name}" for kind, name in made))


def _kind(kind: str) -> str:
    return "routine" if kind in ("FUNCTION", "PROCEDURE") else kind.lower()


def _texts() -> dict[str, str]:
    """Return, by name, the hash of all statements that make routines of that name."""
    said: dict[str, str] = {}
    for script in scripts():
        for statement in statements(script):
            for name in statement.names:
                said[name] = said.get(name, "") + statement.sql
    return {name: sha256(sql.encode()).hexdigest() for name, sql in said.items()}


def _there(connection: Connection) -> dict[str, str]:
    return {row.name: row.made for row in connection.execute(THERE)}
