"""Check the promise of fairness against the record of the last passes: an account that holds nothing is next.

While it waits, no other account gets a second slot (docs/guarantees.md, 10). The promise is also checked in time,
against the tickets: a claimed task begins soon, and does not wait behind earlier claims of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, text

#: Passes read of each role, and the largest record (bytes) that is read.
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


#: Maximum wait for earlier claims of an account that runs nothing: seconds, or a number of runs if these take longer.
#: By default it waits about a second and a run. A longer wait is unfair while tasks claimed earlier still begin. It is
#: not if one long run has the slots, or if a ticket was lost and tasks claimed later begin.
LONGEST, RUNS = 10.0, 3

#: Maximum number of a role's oldest unstarted tickets that are read.
MOST_IN_LINE = 200

# Reads the tickets that are held, and no dead entries: see `held_since` in dispatch/select.py.
IN_LINE = text("""
SELECT t.role, max(extract(epoch FROM statement_timestamp() - t.claimed_at)) AS waited, max(bound.seconds) AS bound
FROM celeriac.roles r
CROSS JOIN LATERAL celeriac.batcher(r.role) AS b
CROSS JOIN LATERAL (SELECT greatest(:longest, :runs * coalesce(b.seconds_per_task, 0)) AS seconds) AS bound
CROSS JOIN LATERAL (
    SELECT role, accounts, claimed_at FROM celeriac.tickets
    WHERE role = r.role AND claimed_at >= coalesce(b.held_since, '-infinity') AND worker_id IS NULL
        AND claimed_at < statement_timestamp() - bound.seconds * interval '1 second'
    ORDER BY role, claimed_at LIMIT :most
) AS t
CROSS JOIN LATERAL (
    SELECT array_agg(account) AS accounts FROM celeriac.tickets o, unnest(o.accounts) AS account
    WHERE o.role = r.role AND o.claimed_at >= coalesce(b.held_since, '-infinity') AND o.worker_id IS NOT NULL
) AS running
WHERE NOT r.paused AND NOT t.accounts && running.accounts
    AND (
        SELECT true FROM celeriac.tickets
        WHERE role = r.role AND claimed_at >= coalesce(b.held_since, '-infinity') AND claimed_at < t.claimed_at
            AND started_at > t.claimed_at + bound.seconds * interval '1 second'
        ORDER BY role DESC, claimed_at DESC LIMIT 1)
GROUP BY t.role
""")

CURSOR = text("SELECT cursor FROM celeriac.batchers WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Turns:
    """A role's order of accounts. `cursor`: the account after which its next pass begins, None before the first.
    `rounds`: how many rounds each account that waits and holds nothing has waited.
    """

    cursor: str | None
    rounds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class InLine:
    """The longest wait (seconds) for a start of an account that runs nothing, behind earlier claims; and its bound."""

    seconds: float
    bound: float


def in_line(connection: Connection) -> dict[str, InLine]:
    """Return the roles in which an account that runs nothing waits too long behind others' claims."""
    read = {"longest": LONGEST, "runs": RUNS, "most": MOST_IN_LINE}
    return {row.role: InLine(float(row.waited), row.bound) for row in connection.execute(IN_LINE, read)}


@dataclass(frozen=True, slots=True)
class SeenPass:
    """A recorded pass. `claimants` is None if its record is too large to read."""

    claimants: Sequence[Mapping[str, Any]] | None
    slots: Mapping[str, int]


def lags(connection: Connection, lines: Mapping[str, InLine]) -> dict[str, float]:
    """Return by role the rounds that an account holding nothing has waited, or, if that is more, its wait in `lines` as
    a multiple of the bound: 1 is the bound, 0 means that nobody waits.
    """
    late = {role: one.seconds / one.bound for role, one in lines.items()}
    rounds: dict[str, float] = {role: lag(passes) for role, passes in _passes(connection, None).items()}
    return rounds | {role: max(late[role], rounds.get(role, 0)) for role in late}


def rounds_waited(connection: Connection, role: str, account: str | None = None) -> int:
    """Return the most rounds that an account of this role, or this one, has waited while holding nothing."""
    return lag(_passes(connection, role).get(role, ()), account)


def turns(connection: Connection, role: str) -> Turns:
    """Return where the next pass of the role begins, and the rounds that each account has waited."""
    cursor = connection.execute(CURSOR, {"role": role}).scalar_one_or_none()
    return Turns(cursor, waited(_passes(connection, role).get(role, ())))


def _passes(connection: Connection, role: str | None) -> dict[str, list[SeenPass]]:
    rows = connection.execute(LAST, {"role": role, "most": PASSES, "largest": LARGEST})
    return {
        name: [SeenPass(row.claimants, row.given) for row in some] for name, some in groupby(rows, lambda row: row.role)
    }


def lag(passes: Iterable[SeenPass], account: str | None = None) -> int:
    """Return the most slots another account got while one, or the given `account`, waited holding nothing. Pure."""
    rounds = waited(passes)
    return max(rounds.values(), default=0) if account is None else rounds.get(account, 0)


def waited(passes: Iterable[SeenPass]) -> dict[str, int]:
    """Return for each account that waits and holds nothing the most slots another got meanwhile. Pure."""
    since: dict[str, int] = {}
    got: dict[int, Counter[str]] = {}
    for number, one in enumerate(passes):
        since = {account: since.get(account, number) for account in _waits(one)}
        got = {first: got.get(first, Counter()) for first in {*since.values()}}
        for slots in got.values():
            slots.update(one.slots)
    return {account: max(got[first].values(), default=0) for account, first in since.items()}


def _waits(one: SeenPass) -> set[str]:
    """Return the accounts that held nothing, could have had a slot, and got none."""
    seen = one.claimants or ()
    free = (c["account"] for c in seen if not c.get("holding") and c.get("waiting") and c.get("cap") != 0)
    return {account for account in free if not one.slots.get(account)}
