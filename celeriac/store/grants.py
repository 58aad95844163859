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
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from psycopg2.extensions import encrypt_password
from sqlalchemy import URL, Connection, text

from celeriac.errors import ConfigurationError
from celeriac.store import addresses
from celeriac.store.migrate import APPLICATION_TABLE, SCHEMA

#: The segments of `ready`, which the ring's turns truncate.
SEGMENTS = ("ready_0", "ready_1", "ready_2")

#: What is told of days: routines keep it with their owner's rights.
DAYS = ("days", "day_roles", "role_totals", "day_changes")

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
    **dict.fromkeys(DAYS, "SELECT"),
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
    "days_begun": "SELECT", "routines": "SELECT", **dict.fromkeys(DAYS, "SELECT"),
}  # fmt: skip

EXISTS = text("SELECT true FROM pg_roles WHERE rolname = :name")

MEMBER = text("SELECT pg_has_role(:name, :role, 'MEMBER')")

RELATIONS = text("""
SELECT relname, relkind = 'm' AND CAST(current_setting('server_version_num') AS integer) >= 170000 AS refreshes
FROM pg_class WHERE relnamespace = CAST(:space AS regnamespace) AND relkind IN ('r', 'p', 'v', 'm') ORDER BY relname
""")

FUNCTIONS = text("""
SELECT CAST(CAST(oid AS regprocedure) AS text) AS signature, proname = 'enqueue' AS enqueues
FROM pg_proc WHERE pronamespace = CAST(:space AS regnamespace) AND prokind = 'f' ORDER BY 1
""")

VERSIONS = (APPLICATION_TABLE,)

#: The endings of the three roles' names.
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


class Login(NamedTuple):
    """A login that a migration makes: the part whose role it is a member of, and the address with which it will
    connect.
    """

    part: str
    url: URL


#: Returns the login, or a role that it is a member of, if no grant limits that.
UNBOUND = text("""
SELECT rolname FROM pg_roles
WHERE pg_has_role(:name, oid, 'MEMBER') AND (
    rolsuper OR rolcreaterole OR rolbypassrls OR rolreplication
    OR rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_execute_server_program')
    OR rolname IN ('pg_read_server_files', 'pg_write_server_files')
    OR oid IN (SELECT nspowner FROM pg_namespace WHERE oid = CAST(:space AS regnamespace))
    OR oid IN (SELECT relowner FROM pg_class WHERE relnamespace = CAST(:space AS regnamespace)))
ORDER BY rolname <> :name, rolname LIMIT 1
""")


def logins(texts: Iterable[str], own: str) -> list[Login]:
    """Return the logins by their texts: enqueue, worker or admin, and the address that the login is to connect with.

    Such as worker=postgresql://user:password@host/database. `own`: the address of who makes them, on the same server
    and database, as a login made elsewhere lets in nobody. Raises ConfigurationError, which quotes no password.
    """
    ours, made = _place(addresses.postgres(own)), dict[str, Login]()
    for part, _, address in (each.partition("=") for each in texts):
        url = _address(address)
        if part not in PARTS or url is None or not url.username or not url.password:
            right = f"give {', '.join(PARTS)}, as in worker=postgresql://user:password@host/database"
            raise ConfigurationError(f"a login is not usable: {right}")
        if (there := _place(url)) != ours:
            raise ConfigurationError(
                f"the login {url.username} is for {there}, and DATABASE_URL names {ours}: have the address of {part} "
                "(WORKER_DATABASE_URL, ADMIN_DATABASE_URL in compose) name the same host and database"
            )
        one, other = Login(part, url), made.setdefault(url.username, Login(part, url))
        if (one.part, one.url.password) != (other.part, other.url.password):
            raise ConfigurationError(f"the login {url.username} is there twice, with another role or password")
    return list(made.values())


def let_in(connection: Connection, login: Login, prefix: str = "celeriac") -> str:
    """Make its user a login with the password of the address, a member of that role, and of no other of the prefix.

    Postgres gets the password as a hash (SCRAM), so its log has none. Returns the name. Raises ConfigurationError.
    """
    part, url = login
    name = str(url.username)
    if name == connection.execute(text("SELECT session_user")).scalar_one():
        raise ConfigurationError(f"{name} owns the tables: give {part} a login of its own")
    quote = connection.dialect.identifier_preparer.quote_identifier
    if connection.execute(EXISTS, {"name": name}).scalar_one_or_none() is None:
        connection.exec_driver_sql(f"CREATE ROLE {quote(name)}")
    if unbound := connection.execute(UNBOUND, {"name": name, "space": SCHEMA}).scalar_one_or_none():
        raise ConfigurationError(
            f"no grant limits {name}, as it is {unbound} or a member of that, which owns tables, is a superuser, has "
            f"CREATEROLE, BYPASSRLS or REPLICATION, or reads or writes all: give {part} a login of its own"
        )
    scope = connection.connection.driver_connection
    hashed = encrypt_password(str(url.password), name, scope=scope, algorithm="scram-sha-256")
    connection.exec_driver_sql(f"ALTER ROLE {quote(name)} LOGIN PASSWORD '{hashed}'")
    connection.exec_driver_sql(f"GRANT {prefix}_{part} TO {quote(name)}")
    for role in (f"{prefix}_{other}" for other in PARTS if other != part):
        if connection.execute(MEMBER, {"name": name, "role": role}).scalar_one():
            connection.exec_driver_sql(f"REVOKE {role} FROM {quote(name)}")
        if connection.execute(MEMBER, {"name": name, "role": role}).scalar_one():
            raise ConfigurationError(f"{name} is a member of {role} as well, by somebody else's grant: revoke that")
    return name


def _place(url: URL) -> str:
    hosts = [url.host] if url.host else url.normalized_query.get("host", ())
    return f"{','.join(hosts) or 'the local socket'}/{url.database or url.username}"


def _address(text_of_it: str) -> URL | None:
    try:
        return addresses.postgres(text_of_it)
    except ConfigurationError:
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
