"""Whether the promise of fairness holds, by the record of the last passes: an account that holds nothing is next.

While it waits, no other account gets a second slot (docs/guarantees.md, 10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, text

#: Passes of each role that are looked at, and how large (bytes) one's record may be.
PASSES, LARGEST = 20, 65_536

# BETWEEN: see `insights.tasks.EVENTS`.
LAST = text("""
SELECT r.role, newest.given,
    CASE WHEN pg_column_size(newest.claimants) <= :largest THEN newest.claimants END AS claimants
FROM celeriac.roles r CROSS JOIN LATERAL (
    SELECT * FROM celeriac.passes WHERE role BETWEEN r.role AND r.role ORDER BY role DESC, id DESC LIMIT :most
) AS newest
WHERE r.role = coalesce(CAST(:role AS text), r.role) AND newest.why_nothing IS NULL
    AND newest.at > statement_timestamp() - interval '10 minutes'
ORDER BY r.role, newest.id
""")


CURSOR = text("SELECT cursor FROM celeriac.batchers WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Turns:
    """Of a role. `cursor`: the account after which its next pass begins, None before the first. `rounds`: of each
    account that waits and holds nothing, those it waits already.
    """

    cursor: str | None
    rounds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SeenPass:
    """`claimants` None: its record is too large to look at."""

    claimants: Sequence[Mapping[str, Any]] | None
    slots: Mapping[str, int]


def lags(connection: Connection) -> dict[str, int]:
    """By role, the rounds that an account which holds nothing waits already; 1 is the bound, 0 is nobody waits."""
    return {role: lag(passes) for role, passes in _passes(connection, None).items()}


def rounds_waited(connection: Connection, role: str) -> int:
    """The same of one role."""
    return lag(_passes(connection, role).get(role, ()))


def rounds(connection: Connection, role: str, account: str) -> int:
    """Those that this account waits already while it holds nothing."""
    return lag(_passes(connection, role).get(role, ()), account)


def turns(connection: Connection, role: str) -> Turns:
    """Where the next pass of the role begins, and who has waited for how many."""
    cursor = connection.execute(CURSOR, {"role": role}).scalar_one_or_none()
    return Turns(cursor, waited(_passes(connection, role).get(role, ())))


def _passes(connection: Connection, role: str | None) -> dict[str, list[SeenPass]]:
    rows = connection.execute(LAST, {"role": role, "most": PASSES, "largest": LARGEST})
    return {
        name: [SeenPass(row.claimants, row.given) for row in some] for name, some in groupby(rows, lambda row: row.role)
    }


def lag(passes: Iterable[SeenPass], account: str | None = None) -> int:
    """Of those that wait since some pass with nothing held, or of this one, the most slots that another got meanwhile.

    Pure.
    """
    rounds = waited(passes)
    return max(rounds.values(), default=0) if account is None else rounds.get(account, 0)


def waited(passes: Iterable[SeenPass]) -> dict[str, int]:
    """Of each account that waits since some pass with nothing held, the most slots that another got meanwhile. Pure."""
    since: dict[str, int] = {}
    got: dict[int, Counter[str]] = {}
    for number, one in enumerate(passes):
        since = {account: since.get(account, number) for account in _waits(one)}
        got = {first: got.get(first, Counter()) for first in {*since.values()}}
        for slots in got.values():
            slots.update(one.slots)
    return {account: max(got[first].values(), default=0) for account, first in since.items()}


def _waits(one: SeenPass) -> set[str]:
    """Who held nothing, could have had a slot, and got none."""
    seen = one.claimants or ()
    free = (c["account"] for c in seen if not c.get("holding") and c.get("waiting") and c.get("cap") != 0)
    return {account for account in free if not one.slots.get(account)}
