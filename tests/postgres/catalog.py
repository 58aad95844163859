"""What a database is made of, as Postgres itself tells it: two databases with equal catalogs are built alike."""

from __future__ import annotations

from sqlalchemy import Connection

SCHEMAS = ("public", "celeriac")

QUERIES = {
    "relations": """
        SELECT c.oid::regclass::text, relkind, relpersistence, reloptions, pg_get_expr(relpartbound, c.oid),
            pg_get_partkeydef(c.oid)
        FROM pg_class c WHERE relnamespace = ANY (:schemas) AND relkind IN ('r', 'p', 'v', 'm', 'S')""",
    "columns": """
        SELECT c.oid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
            a.attgenerated, pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = ANY (:schemas) AND c.relkind IN ('r', 'p', 'c')
            AND a.attnum > 0 AND NOT a.attisdropped""",
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid), i.indisvalid, c.reloptions
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace = ANY (:schemas)""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated
        FROM pg_constraint WHERE connamespace = ANY (:schemas)""",
    "triggers": """
        SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = ANY (:schemas) AND NOT t.tgisinternal""",
    "views": """
        SELECT oid::regclass::text, pg_get_viewdef(oid) FROM pg_class
        WHERE relnamespace = ANY (:schemas) AND relkind IN ('v', 'm')""",
    "functions": """
        SELECT pg_get_functiondef(oid), proacl::text FROM pg_proc WHERE pronamespace = ANY (:schemas)""",
}


def catalog(connection: Connection, *schemas: str) -> dict[str, set[str]]:
    """By kind, a line for each thing there is in these schemas, or all of ours."""
    spaces = "CAST(ARRAY[" + ", ".join(f"'{s}'" for s in schemas or SCHEMAS) + "] AS regnamespace[])"
    return {kind: _lines(connection, query.replace(":schemas", spaces)) for kind, query in QUERIES.items()}


def _lines(connection: Connection, query: str) -> set[str]:
    return {" | ".join(map(str, row)) for row in connection.exec_driver_sql(query)}
