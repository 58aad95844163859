"""Logins of Postgres that may enqueue certain roles only, through `celeriac.enqueue`.

A login's other rights are Postgres's own grants: one that may write the tables themselves is not limited by this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from celeriac.errors import BadValue
from celeriac.operate import audit
from celeriac.operate.audit import Change

LIMIT = text("""
WITH before AS (SELECT roles FROM celeriac.enqueuers WHERE login = :login)
INSERT INTO celeriac.enqueuers (login, roles, by) VALUES (:login, CAST(:roles AS text[]), :by)
ON CONFLICT (login) DO UPDATE SET roles = excluded.roles, by = excluded.by, updated_at = statement_timestamp()
RETURNING (SELECT roles FROM before) AS before
""")

FREE = text("DELETE FROM celeriac.enqueuers WHERE login = :login RETURNING roles")

LIST = text("SELECT login, roles, by, updated_at FROM celeriac.enqueuers ORDER BY login")


@dataclass(frozen=True, slots=True)
class SqlEnqueuer:
    """A limited login: the roles it may enqueue, who limited it and when."""

    login: str
    roles: list[str]
    by: str
    updated_at: datetime


def limit(connection: Connection, login: str, roles: Collection[str], *, by: str) -> None:
    """From now on that login enqueues these roles only; neither need exist yet. Raises BadValue."""
    if not login.strip() or not login.isprintable():
        raise BadValue(f"login={login!r:.120}: give the name of a login of Postgres")
    if not roles or not all(role.strip() and role.isprintable() for role in roles):
        raise BadValue(f"roles={sorted(roles)!r:.120}: give one name of a role, or more")
    now = sorted(set(roles))
    before = connection.execute(LIMIT, {"login": login, "roles": now, "by": by}).scalar_one()
    audit.write(connection, "limit", "enqueuer", [Change(login, before and {"roles": before}, {"roles": now})], by=by)


def free(connection: Connection, login: str, *, by: str) -> bool:
    """Whether it was limited. From now on it enqueues every role."""
    before = connection.execute(FREE, {"login": login}).scalar_one_or_none()
    if before is not None:
        audit.write(connection, "free", "enqueuer", [Change(login, {"roles": before}, None)], by=by)
    return before is not None


def every(connection: Connection) -> list[SqlEnqueuer]:
    """All that are limited, by name."""
    return [SqlEnqueuer(**row) for row in connection.execute(LIST).mappings()]
