"""Shares: what each account has waiting and holds, beside its fair share; and floods of one account's tasks.

The fair share is the weighted max-min share of the role's window (Bertsekas and Gallager, *Data Networks*, 6.5.2), in
fractions of slots. Passes give whole slots, account by account, once what runs now has ended.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, text

from celeriac.errors import BadValue
from celeriac.insights.tasks.counting import Count, roles_in

#: Maximum number of a role's accounts that are read, and of an account's tasks that are counted.
ACCOUNTS, CAP = 200, 500

MOST = 1_000

_Row = Row[Any] | None

# INVARIANT of `walk`: each step is one descent into `ready_in_order`: to the role's next account, or after :accounts of
# them to the next role. In an account's own order the oldest of those counted need not be the first.
WAITING = text("""
WITH RECURSIVE walk AS (
    (SELECT role, account, 1 AS nth FROM celeriac.ready WHERE role >= coalesce(CAST(:role AS text), '')
        ORDER BY role, account LIMIT 1)
    UNION ALL
    SELECT next.* FROM walk, LATERAL (
        (SELECT role, account, walk.nth + 1 FROM celeriac.ready
            WHERE role = walk.role AND account > walk.account AND walk.nth < :accounts ORDER BY account LIMIT 1)
        UNION ALL
        (SELECT role, account, 1 FROM celeriac.ready
            WHERE role > walk.role AND CAST(:role AS text) IS NULL ORDER BY role, account LIMIT 1)
        LIMIT 1
    ) AS next (role, account, nth)
)
SELECT walk.role, walk.account, counted.n, counted.oldest
FROM walk, LATERAL (
    SELECT count(*) AS n, min(due_at) AS oldest FROM (
        SELECT due_at FROM celeriac.ready WHERE role = walk.role AND account = walk.account
        ORDER BY priority DESC, due_at, id LIMIT :most) AS first_ones
) AS counted
WHERE walk.role = coalesce(CAST(:role AS text), walk.role)
""")

HELD = text("""
SELECT role, account, count(*) FILTER (WHERE worker_id IS NULL) AS claimed,
    count(*) FILTER (WHERE worker_id IS NOT NULL) AS running
FROM celeriac.tickets, unnest(accounts) AS account
WHERE CAST(:role AS text) IS NULL OR role = :role
GROUP BY role, account
""")

# INVARIANT of `walk`: each step is one descent into `parked_of_account`, to the account's next role (unless one is
# given) or to the next account. It names the index's whole order, because a part of it would let Postgres choose
# another index.
PARKED = text("""
WITH RECURSIVE walk AS (
    (SELECT account, role FROM celeriac.parked ORDER BY account, role, priority DESC, due_at, id LIMIT 1)
    UNION ALL
    SELECT next.* FROM walk, LATERAL (
        (SELECT account, role FROM celeriac.parked
            WHERE account = walk.account AND role > walk.role AND CAST(:role AS text) IS NULL
            ORDER BY role, priority DESC, due_at, id LIMIT 1)
        UNION ALL
        (SELECT account, role FROM celeriac.parked WHERE account > walk.account
            ORDER BY account, role, priority DESC, due_at, id LIMIT 1)
        LIMIT 1
    ) AS next (account, role)
)
SELECT looked.role, looked.account, counted.n, counted.oldest
FROM (SELECT account, coalesce(CAST(:role AS text), role) AS role FROM walk LIMIT :accounts) AS looked, LATERAL (
    SELECT count(*) AS n, min(due_at) AS oldest FROM (
        SELECT due_at FROM celeriac.parked WHERE account = looked.account AND role = looked.role
        ORDER BY priority DESC, due_at, id LIMIT :most) AS first_ones
) AS counted
""")

# INVARIANT of `names`: one descent per role that has something ready.
OF_ACCOUNT = text(f"""
{roles_in("ready", "names")}
SELECT coalesce((SELECT sum(counted.n) FROM names, LATERAL (SELECT count(*) AS n FROM (
        SELECT FROM celeriac.ready WHERE role = names.role AND account = :account
        ORDER BY priority DESC, due_at, id LIMIT :most) AS r) AS counted), 0)
    + (SELECT count(*) FROM (
        SELECT FROM celeriac.parked WHERE account = :account
        ORDER BY role, priority DESC, due_at, id LIMIT :most) AS p)
""")

POLICIES = text("""
SELECT account, weight, cap, paused FROM celeriac.account_policies WHERE account = ANY (CAST(:accounts AS text[]))
""")

WINDOWS = text("""
SELECT role, (SELECT size FROM celeriac.current_window(role)) AS slots FROM celeriac.roles
WHERE CAST(:role AS text) IS NULL OR role = :role
""")

#: Number of a role's newest tasks that are read, and the share of one account that makes them a flood.
NEWEST_OF_ROLE, FLOOD = 1_000, 0.8

# INVARIANT: :newest entries of an index for each role, and a descent for another account on either side.
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
class AccountShare:
    """An account's share of one role, or (`role` None) of all together.

    `waiting`: ready to start; `parked`: the account is paused, or may have nothing. `oldest_due`: of those counted.
    `fair`: slots it would hold if all were allocated anew; `fair_share` and `held_share`: its share (0 to 1) of the
    slots that all accounts would hold, and of those they do hold.
    """

    role: str | None
    account: str
    waiting: Count
    parked: Count
    oldest_due: datetime | None
    claimed: int
    running: int
    weight: float
    cap: int | None
    paused: bool
    fair: float
    fair_share: float
    held_share: float

    @property
    def held(self) -> int:
        return self.claimed + self.running

    @property
    def lacks(self) -> float:
        """The slots it has less than its fair share; below 0 it has more."""
        return self.fair - self.held


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of accounts. `accounts`: the one that lacks most of its fair share first. `is_all` False: some role has
    more accounts than were read, or more than are returned; fair shares then leave the others out.
    """

    accounts: list[AccountShare]
    is_all: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """An account's demand: all it has waiting and holds, up to its cap."""

    wants: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Flood:
    """`n` of the `looked_at` newest unfinished tasks of the role are the account's."""

    role: str
    account: str
    n: int
    looked_at: int


def shares(connection: Connection, role: str | None = None, *, limit: int = ACCOUNTS) -> Shares:
    """Return, for one role or all together, each account's waiting tasks, what it holds and its fair share."""
    if not 1 <= limit <= MOST:
        raise BadValue(f"limit={limit}: give 1 to {MOST:,}")
    asked = {"role": role, "accounts": ACCOUNTS + 1, "most": CAP + 1}
    waiting = {(row.role, row.account): row for row in connection.execute(WAITING, asked)}
    shut = connection.execute(PARKED, asked).all()
    parked = {(row.role, row.account): row for row in shut if row.n}
    held = {(row.role, row.account): row for row in connection.execute(HELD, {"role": role})}
    keys = sorted(waiting.keys() | parked.keys() | held.keys())
    accounts = sorted({account for _, account in keys})
    policies = policies_of(connection, accounts)
    windows = {row.role: row.slots for row in connection.execute(WINDOWS, {"role": role})}
    rows = [_row(key, waiting.get(key), parked.get(key), held.get(key), policies.get(key[1], {})) for key in keys]
    of_roles = [s for name, some in groupby(rows, lambda s: s.role) for s in _shared(list(some), windows.get(name))]
    listed = of_roles if role is not None else _together(of_roles)
    looked_at = [*Counter(name for name, _ in waiting).values(), len(shut)]
    is_all = max(looked_at) <= ACCOUNTS and len(listed) <= limit
    return Shares(sorted(listed, key=lambda share: (-share.lacks, share.account))[:limit], is_all)


def policies_of(connection: Connection, accounts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the policies set for these accounts, by account; one without a policy is not in it."""
    rows = connection.execute(POLICIES, {"accounts": list(accounts)}).mappings()
    return {row["account"]: dict(row) for row in rows}


def waiting_of(connection: Connection, account: str) -> Count:
    """Count an account's tasks that are ready or parked."""
    n = int(connection.execute(OF_ACCOUNT, {"account": account, "most": MOST + 1}).scalar_one())
    return Count.up_to(MOST, n)


def fair_slots(claims: Sequence[Claim], slots: float) -> list[float]:
    """Return the weighted max-min share of each claim: none above its demand, equal levels for those below theirs.

    Progressive filling: claims that are satisfied soonest are served first, and the others get the slots that are left.
    """
    fair = [0.0] * len(claims)
    weight = sum(claim.weight for claim in claims)
    for n in sorted(range(len(claims)), key=lambda n: claims[n].wants / claims[n].weight):
        fair[n] = max(0.0, min(claims[n].wants, slots * claims[n].weight / weight))
        slots, weight = slots - fair[n], weight - claims[n].weight
    return fair


def _row(key: tuple[str, str], ready: _Row, parked: _Row, held: _Row, policy: Mapping[str, Any]) -> AccountShare:
    times = [row.oldest for row in (ready, parked) if row is not None and row.oldest is not None]
    return AccountShare(
        role=key[0], account=key[1], waiting=_count(ready), parked=_count(parked), oldest_due=min(times, default=None),
        claimed=held.claimed if held else 0, running=held.running if held else 0,
        weight=policy.get("weight", 1.0), cap=policy.get("cap"), paused=policy.get("paused", False),
        fair=0.0, fair_share=0.0, held_share=0.0,
    )  # fmt: skip


def _count(row: _Row) -> Count:
    return Count.up_to(CAP, row.n if row else 0)


def _shared(rows: Sequence[AccountShare], window: int | None) -> list[AccountShare]:
    """Return a role's shares with the fair ones. An undeclared role has as many slots as are held."""
    held = sum(share.held for share in rows)
    fair = fair_slots([Claim(_wants(share), share.weight) for share in rows], held if window is None else window)
    return _with_parts([replace(share, fair=slots) for share, slots in zip(rows, fair, strict=True)])


def _wants(share: AccountShare) -> float:
    """Return the slots the account would hold. A count that stopped at its bound may be any number: infinity."""
    if share.paused or share.cap == 0:
        return share.held
    wants = share.held + share.waiting.n if share.waiting.exact else math.inf
    return wants if share.cap is None else min(wants, max(share.cap, share.held))


def _with_parts(rows: Sequence[AccountShare]) -> list[AccountShare]:
    fair, held = sum(share.fair for share in rows) or 1.0, sum(share.held for share in rows) or 1
    return [replace(s, fair_share=s.fair / fair, held_share=s.held / held) for s in rows]


def _together(rows: Iterable[AccountShare]) -> list[AccountShare]:
    by_account: dict[str, AccountShare] = {}
    for share in rows:
        before = by_account.get(share.account)
        by_account[share.account] = replace(share, role=None) if before is None else _sum(before, share)
    return _with_parts(list(by_account.values()))


def _sum(one: AccountShare, other: AccountShare) -> AccountShare:
    times = [at for at in (one.oldest_due, other.oldest_due) if at is not None]
    return replace(
        one, waiting=_added(one.waiting, other.waiting), parked=_added(one.parked, other.parked),
        oldest_due=min(times, default=None), claimed=one.claimed + other.claimed, running=one.running + other.running,
        fair=one.fair + other.fair,
    )  # fmt: skip


def _added(one: Count, other: Count) -> Count:
    return Count(one.n + other.n, one.exact and other.exact)


def floods(connection: Connection, roles: Sequence[str]) -> list[Flood]:
    """Return the floods among these roles, by look-ups."""
    if not roles:
        return []
    wanted = {"roles": list(roles), "newest": NEWEST_OF_ROLE, "share": FLOOD}
    return [Flood(**row) for row in connection.execute(FLOODS, wanted).mappings()]
