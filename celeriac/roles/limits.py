"""Limits of a role: how many of its tasks begin in a time, over all workers, and how long one may run.

An operator's limits replace the declared ones until the code declares others. A rate is a bucket of tokens in SQL, one
for each task that begins: it holds one period's worth at most (10 for "10/m").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, text

from celeriac.roles.role import Role

AS_DECLARED = """
INSERT INTO celeriac.role_limits AS l (role, declared, rate_limit, tokens)
SELECT r.role, celeriac.declared_limits(r.definition), r.definition ->> 'rate_limit',
    celeriac.burst(r.definition ->> 'rate_limit')
FROM celeriac.roles r"""

# INVARIANT: operators' limits are dropped once the declared ones change. Rows whose declaration is unchanged are not
# locked.
REGISTER = text(f"""{AS_DECLARED} LEFT JOIN celeriac.role_limits o ON o.role = r.role
WHERE r.role = ANY (CAST(:roles AS text[])) AND (r.definition ->> 'rate_limit' IS NOT NULL OR o.role IS NOT NULL)
    AND o.declared IS DISTINCT FROM celeriac.declared_limits(r.definition)
ORDER BY r.role
ON CONFLICT (role) DO UPDATE
SET declared = excluded.declared, rate_limit = excluded.rate_limit, tokens = least(celeriac.tokens(l), excluded.tokens),
    taken_at = clock_timestamp(), is_told = false, timeout = NULL, hard_timeout = NULL, updated_at = clock_timestamp()
WHERE l.declared <> excluded.declared
""")

KNOWN = text("SELECT role, rate_limit, is_told, timeout, hard_timeout FROM celeriac.role_limits")

# A hash over all rows, because a change may be committed after a later one. Never 0, which means that nobody watches.
AS_OF = text("""
SELECT coalesce(nullif(hashtextextended(
    string_agg(role || ' ' || CAST(extract(epoch FROM updated_at) AS text), ',' ORDER BY role), 0), 0), 1)
FROM celeriac.role_limits
""")

# INVARIANT: the row's lock puts those that take tokens in order; each one sees what the one before has left.
TAKE = text("""
WITH bucket AS MATERIALIZED (
    SELECT role, celeriac.tokens(l) AS has FROM celeriac.role_limits l
    WHERE role = :role AND rate_limit IS NOT NULL FOR UPDATE
), taken AS (
    UPDATE celeriac.role_limits l SET tokens = has - least(:n, floor(has)), taken_at = clock_timestamp()
    FROM bucket b WHERE l.role = b.role
)
SELECT CAST(least(:n, floor(has)) AS integer) FROM bucket
""")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that apply to a role now. `rate_limit` None: no limit. `time_limits`: those that replace the declared
    ones.
    """

    rate_limit: str | None = None
    time_limits: tuple[float | None, float | None] | None = None

    def applied(self, role: Role) -> Role:
        if self.time_limits is None:
            return role
        timeout, hard_timeout = self.time_limits
        return replace(role, timeout=timeout, hard_timeout=hard_timeout)


def register(connection: Connection, roles: Sequence[str]) -> None:
    """Write new declared limits; call it after the roles' definitions are written."""
    connection.execute(REGISTER, {"roles": list(roles)})


def known(connection: Connection) -> dict[str, Limits]:
    """Return the limits of each role that has some."""
    return {
        row.role: Limits(row.rate_limit, (row.timeout, row.hard_timeout) if row.is_told else None)
        for row in connection.execute(KNOWN)
    }


def as_of(connection: Connection) -> int:
    """Return a number that changes with every change of a limit."""
    return int(connection.execute(AS_OF).scalar_one())


def take(connection: Connection, role: str, n: int) -> int:
    """Take tokens and return how many of `n` tasks may begin now; all, if the role has no rate any more."""
    taken = connection.execute(TAKE, {"role": role, "n": n}).scalar_one_or_none()
    return n if taken is None else int(taken)
