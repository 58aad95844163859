"""Vacuum, as it would have come by itself: outside of a transaction, which the engine's own statements begin."""

from __future__ import annotations

from celeriac.store.connections import Database


def vacuum(database: Database, tables: str = "") -> None:
    """Of these tables (names with commas between them), or of all."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"VACUUM ANALYZE {tables}")
