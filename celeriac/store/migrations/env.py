"""Alembic's entry: runs one branch (the engine's or the application's) in the transaction of `store/migrate.py`.

A migration that would wait behind a long transaction gives up instead of blocking production: lock_timeout makes
it fail while others still get through; statement_timeout bounds what it may take.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import text

connection = context.config.attributes["connection"]
lock_timeout, statement_timeout = context.config.attributes["timeouts"]

branch = context.config.attributes["branch"]

context.configure(connection=connection, version_table=branch.table, version_table_schema=branch.schema)
with context.begin_transaction():
    connection.execute(text(f"SET LOCAL lock_timeout = {int(lock_timeout * 1000)}"))
    connection.execute(text(f"SET LOCAL statement_timeout = {int(statement_timeout * 1000)}"))
    context.run_migrations()
