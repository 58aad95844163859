"""Least-privilege Postgres roles, an optional step after the migrations: logins are made members of one of them.

    <prefix>_enqueue    may call `celeriac.enqueue`, and nothing else: it sees no table
    <prefix>_worker     what workers and beat do: tasks and the record of them, the application's tables; it cannot
                        steer accounts, read tokens or touch the audit trail
    <prefix>_admin      what the HTTP API and the command line do as well; even it only adds to the audit trail,
                        which has the login and the time, and makes no token that is not in there

Migrations stay with the login that owns the tables. Run the step again after migrating: new tables have no grants yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from psycopg2.extensions import encrypt_password
from sqlalchemy import URL, Connection, make_url, text
from sqlalchemy.exc import ArgumentError

from celeriac.errors import ConfigurationError
from celeriac.store.migrate import APPLICATION_TABLE, SCHEMA

#: The segments of `ready`, which the ring's turns truncate.
SEGMENTS = ("ready_0", "ready_1", "ready_2")

_ALL = "SELECT, INSERT, UPDATE, DELETE"

#: A worker's rights to those of the engine's tables where it does not have all.
WORKER = {
    "task_events": "SELECT, INSERT, DELETE",
    "ticks": "SELECT, INSERT, DELETE",
    "task_logs": "SELECT, INSERT, DELETE",
    "roles": "SELECT, INSERT, UPDATE",  # a trigger keeps what is secret
    "role_limits": "SELECT, INSERT, UPDATE",
    "alert_silences": "SELECT, DELETE",
    "bulk_actions": "SELECT, DELETE",
    "bulk_tasks": "SELECT, DELETE",
    "failure_marks": "",
    "saved_views": "",
    "account_policies": "SELECT, UPDATE (updated_at)",  # needed to lock a row FOR SHARE
    "version": "SELECT",
    "afterwards": "",
    "routines": "",
    "ended": "SELECT, DELETE",
    "unlisted": "SELECT",
    "days_begun": "SELECT",
    "dropped_days": "SELECT, DELETE",
    **dict.fromkeys(SEGMENTS, f"{_ALL}, TRUNCATE"),
    "api_tokens": "",
    "dashboard_sessions": "",
    "enqueuers": "",
    "audit": "",
}

#: An admin's rights where it does not have all.
ADMIN = {
    **dict.fromkeys(SEGMENTS, f"{_ALL}, TRUNCATE"),
    # The writer of the audit trail does not set its time and login; and what a token may do is never changed.
    "audit": "SELECT, INSERT (by, action, kind, target, before, after, why, via)",
    "api_tokens": "SELECT, INSERT, UPDATE (last_used_at, revoked_at)", "version": "SELECT",
    "afterwards": "SELECT", "ended": "SELECT, DELETE", "unlisted": "SELECT", "dropped_days": "SELECT, DELETE",
    "days_begun": "SELECT", "routines": "SELECT",
}  # fmt: skip

EXISTS = text("SELECT true FROM pg_roles WHERE rolname = :name")

RELATIONS = text("""
SELECT relname, relkind = 'm' AND CAST(current_setting('server_version_num') AS integer) >= 170000 AS refreshes
FROM pg_class WHERE relnamespace = CAST(:space AS regnamespace) AND relkind IN ('r', 'p', 'v', 'm') ORDER BY relname
""")

FUNCTIONS = text("""
SELECT CAST(CAST(oid AS regprocedure) AS text) AS signature, proname = 'enqueue' AS enqueues
FROM pg_proc WHERE pronamespace = CAST(:space AS regnamespace) AND prokind = 'f' ORDER BY 1
""")

VERSIONS = (APPLICATION_TABLE,)

#: What the names of the three roles end with.
PARTS = ("enqueue", "worker", "admin")


def grant(connection: Connection, prefix: str = "celeriac") -> list[str]:
    """Make the three roles if they do not exist, give each what it needs and no more, and return their names."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", prefix):
        raise ConfigurationError(f"the prefix {prefix!r}: give lower case letters, digits and _, at most 40")
    names = [f"{prefix}_{part}" for part in PARTS]
    # The lock is needed because two databases of a cluster share its roles.
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('celeriac rights', 0))"))
    for name in names:
        if connection.execute(EXISTS, {"name": name}).scalar_one_or_none() is None:
            connection.exec_driver_sql(f"CREATE ROLE {name} NOLOGIN")
    for statement in _statements(connection, *names):
        connection.exec_driver_sql(statement)
    return names


def let_in(connection: Connection, login: str, prefix: str = "celeriac") -> str:
    """Make the user of an address a login, a member of one of the roles, with the password of the address.

    `login`: enqueue, worker or admin, and the address: worker=postgresql://user:password@host/database. Postgres gets
    the password as a hash (SCRAM), so its log has none. Returns the name. Raises ConfigurationError.
    """
    part, _, address = login.partition("=")
    url = _address(address)
    if part not in PARTS or url is None or not url.username or not url.password:
        right = f"give {', '.join(PARTS)}, as in worker=postgresql://user:password@host/database"
        raise ConfigurationError(f"a login is not usable: {right}")
    own = connection.execute(text("SELECT session_user")).scalar_one()
    if url.username == own:
        raise ConfigurationError(f"{own} owns the tables: give {part} a login of its own")
    quote, name = connection.dialect.identifier_preparer.quote_identifier, url.username
    if connection.execute(EXISTS, {"name": name}).scalar_one_or_none() is None:
        connection.exec_driver_sql(f"CREATE ROLE {quote(name)}")
    scope = connection.connection.driver_connection
    hashed = encrypt_password(url.password, name, scope=scope, algorithm="scram-sha-256")
    connection.exec_driver_sql(f"ALTER ROLE {quote(name)} LOGIN PASSWORD '{hashed}'")
    connection.exec_driver_sql(f"GRANT {prefix}_{part} TO {quote(name)}")
    return name


def _address(text_of_it: str) -> URL | None:
    try:
        return make_url(text_of_it)
    except ArgumentError:
        return None


def _statements(connection: Connection, enqueue: str, worker: str, admin: str) -> Iterator[str]:
    """Yield the grants on the engine's schema and on the application's, whose tables workers need, too."""
    application = connection.execute(text("SELECT current_schema()")).scalar_one()
    for schema in (SCHEMA, application):
        space = connection.dialect.identifier_preparer.quote(schema)
        yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {space} FROM PUBLIC, {enqueue}, {worker}, {admin}"
        yield f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {space} FROM PUBLIC, {enqueue}, {worker}, {admin}"
        yield f"GRANT USAGE ON SCHEMA {space} TO {enqueue}, {worker}, {admin}"
        yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {space} TO {worker}, {admin}"
        for function in connection.execute(FUNCTIONS, {"space": space}):
            yield f"GRANT EXECUTE ON FUNCTION {function.signature} TO {worker}, {admin}"
            if schema == SCHEMA and function.enqueues:
                yield f"GRANT EXECUTE ON FUNCTION {function.signature} TO {enqueue}"
        yield from _on_tables(connection, space, schema == SCHEMA, worker, admin)


def _on_tables(connection: Connection, space: str, ours: bool, worker: str, admin: str) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    for name, refreshes in connection.execute(RELATIONS, {"space": space}):
        less = ({worker: WORKER, admin: ADMIN} if ours else {}).items()
        # MAINTAIN: REFRESH MATERIALIZED VIEW, as a handler may have to.
        usual = "SELECT" if name in VERSIONS and not ours else f"{_ALL}, MAINTAIN" if refreshes else _ALL
        rights = {worker: usual, admin: usual} | {role: table[name] for role, table in less if name in table}
        for role, may in rights.items():
            if may:
                yield f"GRANT {may} ON {space}.{quote(name)} TO {role}"
