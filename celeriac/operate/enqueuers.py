"""Limit logins of Postgres to certain calls of `celeriac.enqueue`. A login's other rights are Postgres' own grants:
this does not limit a login that may write the tables themselves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.operate import audit
from celeriac.operate.allowed import Allowed
from celeriac.operate.audit import Change

LIMIT = text("""
WITH before AS (SELECT roles, accounts, keys, priorities FROM celeriac.enqueuers WHERE login = :login), now AS (
    INSERT INTO celeriac.enqueuers (login, roles, accounts, keys, priorities, by)
    VALUES (:login, CAST(:roles AS text[]), CAST(:accounts AS text[]), CAST(:keys AS text[]),
        CAST(:priorities AS integer[]), :by)
    ON CONFLICT (login) DO UPDATE SET roles = excluded.roles, accounts = excluded.accounts, keys = excluded.keys,
        priorities = excluded.priorities, by = excluded.by, updated_at = statement_timestamp())
SELECT roles, accounts, keys, priorities FROM before
""")

FREE = text("DELETE FROM celeriac.enqueuers WHERE login = :login RETURNING roles, accounts, keys, priorities")

LIST = text("SELECT login, roles, accounts, keys, priorities, by, updated_at FROM celeriac.enqueuers ORDER BY login")


@dataclass(frozen=True, slots=True)
class SqlEnqueuer:
    """A limited login: what it may enqueue, who limited it and when."""

    login: str
    roles: list[str] | None
    accounts: list[str] | None
    keys: list[str] | None
    priorities: list[int] | None
    by: str
    updated_at: datetime


def limit(connection: Connection, login: str, allowed: Allowed, *, by: str) -> None:
    """Limit the login to these calls from now on; the roles need not exist yet. Raises BadValue."""
    if not login.strip() or not login.isprintable():
        raise BadValue(f"login={login!r:.120}: give the name of a login of Postgres")
    if not allowed.limits():
        raise BadValue("give a role, an account, a key or priorities that it is limited to")
    if wrong := allowed.wrong():
        raise BadValue(wrong)
    row = connection.execute(LIMIT, {"login": login, "by": by} | asdict(allowed)).one_or_none()
    before = None if row is None else Allowed(*row).limits()
    audit.write(connection, "limit", "enqueuer", [Change(login, before, allowed.limits())], by=by)


def free(connection: Connection, login: str, *, by: str) -> bool:
    """Remove a login's limit, so that its grants alone decide. Return whether it was limited."""
    row = connection.execute(FREE, {"login": login}).one_or_none()
    if row is not None:
        audit.write(connection, "free", "enqueuer", [Change(login, Allowed(*row).limits(), None)], by=by)
    return row is not None


def every(connection: Connection) -> list[SqlEnqueuer]:
    """Return all limited logins, by name."""
    return [SqlEnqueuer(**row) for row in connection.execute(LIST).mappings()]
