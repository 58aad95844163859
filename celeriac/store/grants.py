"""Least-privilege Postgres roles, an optional step after the migrations: logins are made members of one of them.

    <prefix>_enqueue    may call `celeriac_enqueue`, and nothing else: it sees no table
    <prefix>_worker     what workers and beat do: tasks and the record of them, the application's tables; it cannot
                        steer accounts, read tokens or touch the audit trail
    <prefix>_admin      what the HTTP API and the command line do as well; even it only adds to the audit trail

Migrations stay with the login that owns the tables. Run the step again after migrating: new tables have no grants yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlalchemy import Connection, text

from celeriac.errors import ConfigurationError
from celeriac.store import tables

#: What a worker may do to each of the engine's tables.
WORKER = {
    "worker_tasks": "SELECT, INSERT, UPDATE, DELETE",
    "task_events": "SELECT, INSERT, DELETE",
    "passes": "SELECT, INSERT, UPDATE, DELETE",
    "batchers": "SELECT, INSERT, UPDATE, DELETE",
    "workers": "SELECT, INSERT, UPDATE, DELETE",
    "scheduled_jobs": "SELECT, INSERT, UPDATE, DELETE",
    "beats": "SELECT, INSERT, UPDATE, DELETE",
    "queue_states": "SELECT, INSERT, UPDATE, DELETE",
    "alerts": "SELECT, INSERT, UPDATE, DELETE",
    "roles": "SELECT, INSERT, UPDATE",
    "account_policies": "SELECT",
}

#: The engine's tables no worker may see.
NOT_WORKERS = ("api_tokens", "audit")

#: Tables of which an admin may less than everything.
ADMIN = {"audit": "SELECT, INSERT", "api_tokens": "SELECT, INSERT, UPDATE"}

_ALL = "SELECT, INSERT, UPDATE, DELETE"

EXISTS = text("SELECT true FROM pg_roles WHERE rolname = :name")

# The engine's own, and what the application brought: the engine does not know its tables, but its workers need them.
RELATIONS = text("""
SELECT relname FROM pg_class
WHERE relnamespace = CAST(current_schema() AS regnamespace) AND relkind IN ('r', 'p', 'v', 'm') ORDER BY relname
""")

FUNCTIONS = text("""
SELECT CAST(CAST(oid AS regprocedure) AS text) AS signature, proname = 'celeriac_enqueue' AS enqueues
FROM pg_proc WHERE pronamespace = CAST(current_schema() AS regnamespace) AND prokind = 'f' ORDER BY 1
""")

VERSIONS = ("celeriac_version", "alembic_version")


def grant(connection: Connection, prefix: str = "celeriac") -> list[str]:
    """Makes the three roles where they lack and gives each what it needs, no more; their names."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", prefix):
        raise ConfigurationError(f"the prefix {prefix!r}: give lower case letters, digits and _, at most 40")
    names = [f"{prefix}_{part}" for part in ("enqueue", "worker", "admin")]
    # Two databases of a cluster share its roles.
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('celeriac rights', 0))"))
    for name in names:
        if connection.execute(EXISTS, {"name": name}).scalar_one_or_none() is None:
            connection.exec_driver_sql(f"CREATE ROLE {name} NOLOGIN")
    for statement in _statements(connection, *names):
        connection.exec_driver_sql(statement)
    return names


def _statements(connection: Connection, enqueue: str, worker: str, admin: str) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    space = quote(connection.execute(text("SELECT current_schema()")).scalar_one())
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {space} FROM PUBLIC, {enqueue}, {worker}, {admin}"
    yield f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {space} FROM PUBLIC, {enqueue}, {worker}, {admin}"
    yield f"GRANT USAGE ON SCHEMA {space} TO {enqueue}, {worker}, {admin}"
    yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {space} TO {worker}, {admin}"
    for function in connection.execute(FUNCTIONS):
        yield f"GRANT EXECUTE ON FUNCTION {function.signature} TO {worker}, {admin}"
        if function.enqueues:
            yield f"GRANT EXECUTE ON FUNCTION {function.signature} TO {enqueue}"
    for name in connection.execute(RELATIONS).scalars():
        for role, rights in ((worker, _of_worker(name)), (admin, _of_admin(name))):
            if rights:
                yield f"GRANT {rights} ON {space}.{quote(name)} TO {role}"


def _of_worker(table: str) -> str:
    if table in VERSIONS:
        return "SELECT"
    return WORKER.get(table, "" if table in tables.metadata.tables else _ALL)


def _of_admin(table: str) -> str:
    return "SELECT" if table in VERSIONS else ADMIN.get(table, _ALL)
