"""What a database is made of, as Postgres itself tells it: two databases with equal catalogs are built alike."""

from __future__ import annotations

from sqlalchemy import Connection, text

QUERIES = {
    "tables": """
        SELECT relname, relkind, relpersistence, reloptions FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')""",
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
            pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
            AND a.attnum > 0 AND NOT a.attisdropped""",
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid), i.indisvalid, c.reloptions
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = 'public'::regnamespace""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "views": """
        SELECT oid::regclass::text, pg_get_viewdef(oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('v', 'm')""",
    "functions": "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
}

#: Alembic's own tables, of which no metadata knows.
VERSION_TABLES = ("celeriac_version", "alembic_version")


def catalog(connection: Connection) -> dict[str, set[str]]:
    """By kind, a line for each thing there is."""
    return {kind: _lines(connection, query) for kind, query in QUERIES.items()}


def _lines(connection: Connection, query: str) -> set[str]:
    lines = (" | ".join(map(str, row)) for row in connection.execute(text(query)))
    return {line for line in lines if not any(table in line for table in VERSION_TABLES)}
