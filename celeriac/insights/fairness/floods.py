"""Floods: roles in which most waiting tasks are one account's, while others wait as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

#: Number of a role's newest tasks that are read, and the share of one account that makes them a flood.
NEWEST, SHARE = 1_000, 0.8

# INVARIANT: so many entries of an index a role, and a descent for another account on either side.
FLOODS = text("""
SELECT wanted.role, top.account, CAST(top.n AS integer) AS n, CAST(top.looked_at AS integer) AS looked_at
FROM unnest(CAST(:roles AS text[])) AS wanted (role) CROSS JOIN LATERAL (
    SELECT account, count(*) AS n, sum(count(*)) OVER () AS looked_at FROM (
        SELECT account FROM celeriac.tasks WHERE role = wanted.role ORDER BY -id LIMIT :newest) AS newest
    GROUP BY account ORDER BY n DESC, account LIMIT 1) AS top
WHERE top.account <> '' AND top.n >= :share * top.looked_at AND (
    top.n < top.looked_at
    OR EXISTS (SELECT FROM celeriac.ready WHERE role = wanted.role AND account < top.account)
    OR EXISTS (SELECT FROM celeriac.ready WHERE role = wanted.role AND account > top.account))
""")


@dataclass(frozen=True, slots=True)
class Flood:
    """`n` of the `looked_at` newest unfinished tasks of the role are the account's."""

    role: str
    account: str
    n: int
    looked_at: int


def floods(connection: Connection, roles: Sequence[str]) -> list[Flood]:
    """Return the floods among these roles, by look-ups."""
    if not roles:
        return []
    wanted = {"roles": list(roles), "newest": NEWEST, "share": SHARE}
    return [Flood(**row) for row in connection.execute(FLOODS, wanted).mappings()]
