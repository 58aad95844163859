"""Decide which accounts get the free slots of one pass, and claim their tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlalchemy import Connection

from celeriac.dispatch import claim, parking, record, resuming, select
from celeriac.dispatch.claim import Taken
from celeriac.dispatch.fairness import Claimant, allocate
from celeriac.dispatch.resuming import Points, Resume
from celeriac.store.plans import in_order

#: Waiting rows that a pass counts at first, for each account; and in each further step, for all accounts together.
FIRST_LOOK = 16
DEEPER_LOOK = 2_000

#: Maximum number of times that a pass goes on past shut accounts (paused, or with a cap of 0), and of tasks that it
#: parks of each.
WALKS = 20
PARKED = 500


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a pass's choice: the accounts it saw, their shares, the tasks it claimed, and the next pass's
    resume points.
    """

    claimants: Sequence[Claimant]
    shares: Mapping[str, int]
    taken: Sequence[Taken] = ()
    resume: Resume | None = None


def decide(connection: Connection, role: str, seen: select.Survey, free: int) -> Decision:
    """Allocate `free` slots and claim tasks for them:
    behind the resume points where those suffice, else from the fronts of all accounts.
    """
    if seen.points:
        done = _behind(connection, role, seen, free, seen.points)
        if done is not None:
            return done
    done = _from_fronts(connection, role, seen, free)
    if seen.points and not done.taken:
        record.forget(connection, role)
    return done


def _behind(connection: Connection, role: str, seen: select.Survey, free: int, points: Points) -> Decision | None:
    """Decide by resume points. None: all accounts have to be read, because too few tasks are behind the points, or an
    account is shut.
    """
    accounts = select.accounts(connection, role, seen, free, min(free, FIRST_LOOK), points)
    if accounts.shut:
        return None
    claimants, shares = _allocated(connection, role, free, accounts.open, points)
    ended = [c.account for c in claimants if shares.get(c.account, 0) >= c.waiting]
    if sum(shares.values()) < free or select.has_lower(connection, role, ended, points):
        return None
    taken = claim.claim(connection, role, shares, points)
    resume = resuming.after_resuming(points, shares, claim.reached(taken))
    return Decision(claimants, shares, taken, resume) if taken else None


def _from_fronts(connection: Connection, role: str, seen: select.Survey, free: int) -> Decision:
    began = time.perf_counter()
    accounts = _open_accounts(connection, role, seen, free)
    claimants, shares = _allocated(connection, role, free, accounts.open, None)
    looked = time.perf_counter() - began
    taken = claim.claim(connection, role, shares)

    def points() -> dict[str, resuming.Point]:
        reached = claim.reached(taken)
        without = [c.account for c in claimants if c.account not in reached]
        return reached | select.before_fronts(connection, role, without)

    resume = None
    if taken and accounts.is_all:
        dead = partial(select.dead_entries, connection)
        resume = resuming.after_scan(looked, len(claimants), points, dead)
    return Decision(_counted_by_claim(claimants, shares, taken, free), shares, taken, resume)


def _allocated(
    connection: Connection, role: str, free: int, claimants: list[Claimant], points: Points | None
) -> tuple[list[Claimant], dict[str, int]]:
    """Allocate slots. As long as all counted tasks of some account got one, count more of its tasks and allocate again.

    A single account without a cap is not counted further: the claim shows how many tasks it has, which saves a second
    scan of its dead entries. Behind resume points there are no dead entries.
    """
    depth = min(free, FIRST_LOOK)
    shares = allocate(claimants, free)
    while short := [c.account for c in claimants if c.waiting == depth < free and shares.get(c.account) == depth]:
        if len(claimants) == 1 and claimants[0].cap is None and points is None:
            depth, deeper = free, {short[0]: free}
        else:
            depth = min(free, max(depth * 4, DEEPER_LOOK // len(short)))
            deeper = select.waiting(connection, role, short, depth, points)
        claimants = [_deepened(c, deeper) for c in claimants]
        shares = allocate(claimants, free)
    return claimants, shares


def _open_accounts(connection: Connection, role: str, seen: select.Survey, free: int) -> select.Accounts:
    """Return the accounts that may get slots. Tasks of accounts that are shut are parked here, once."""
    for _ in range(WALKS):
        accounts = select.accounts(connection, role, seen, free, min(free, FIRST_LOOK))
        if not accounts.shut:
            break
        parked = parking.park(connection, role, accounts.shut, PARKED)
        in_order(connection)
        if not parked or accounts.is_all:
            break
    return accounts


def _counted_by_claim(
    claimants: list[Claimant], shares: Mapping[str, int], taken: Sequence[Taken], free: int
) -> Sequence[Claimant]:
    """Return the claimants. An only account gets all slots uncounted; it is returned with the number of tasks that the
    claim took.
    """
    if len(claimants) == 1 and shares.get(claimants[0].account) == free > len(taken) > 0:
        return [_deepened(claimants[0], {claimants[0].account: len(taken)})]
    return claimants


def _deepened(claimant: Claimant, waiting: Mapping[str, int]) -> Claimant:
    return replace(claimant, waiting=waiting.get(claimant.account, claimant.waiting))
