"""Allocate free slots by weighted max-min fairness over what each account would then hold.

Pure. Follows Bertsekas and Gallager, *Data Networks*, 6.5.2 (max-min fair share by progressive filling), in whole
slots: every slot goes to the account whose holding is smallest for its weight. Ties are broken by rotation, so that
the next pass starts with whoever this one could not give an equal share.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claimant:
    """An account with waiting tasks. `cap` bounds what it may hold, claimed and running together."""

    account: str
    waiting: int
    holding: int = 0
    weight: float = 1.0
    cap: int | None = None

    @property
    def wants(self) -> int:
        room = self.waiting if self.cap is None else self.cap - self.holding
        return max(0, min(self.waiting, room))


def in_turn(claimants: Sequence[Claimant], cursor: str, free: int) -> list[Claimant]:
    """Return all claimants of a role in rotation order; they come in that order by their names as texts.

    If all names are whole numbers, the order is theirs as numbers, 2 before 10, provided that each account that holds
    nothing gets a slot in this pass, so that the order makes nobody wait for the next one. Otherwise it stays as it is:
    the cursor moves by texts, also past accounts that this pass has not read.
    """
    quiet = sum(not claimant.holding for claimant in claimants)
    if quiet > free or not all(is_number(claimant.account) for claimant in claimants):
        return list(claimants)
    after = _as_number(cursor) if is_number(cursor) else (0, "")
    return sorted(claimants, key=lambda c: (_as_number(c.account) <= after, _as_number(c.account)))


def is_number(account: str) -> bool:
    return account.isascii() and account.isdecimal() and (account == "0" or account[0] != "0")


def _as_number(account: str) -> tuple[int, str]:
    """Return a sort key with the order of the numbers, however many digits they have."""
    return len(account), account


def allocate(claimants: Sequence[Claimant], free: int) -> dict[str, int]:
    """Return slots per account, for at most `free` slots; accounts that get none are absent.

    `claimants` are in rotation order: the first is the one after the cursor. No claimant gets more than it wants,
    and no slot stays free while one wants more. Takes O((n + free) log n) steps; the last that wants more gets the
    rest at once.
    """
    wants = [c.wants for c in claimants]
    queue = [(c.holding / c.weight, turn) for turn, c in enumerate(claimants) if wants[turn]]
    heapq.heapify(queue)
    shares: dict[str, int] = {}
    while queue and free > 0:
        _, turn = queue[0]
        claimant = claimants[turn]
        before = shares.get(claimant.account, 0)
        slots = 1 if len(queue) > 1 else min(free, wants[turn] - before)
        share = shares[claimant.account] = before + slots
        free -= slots
        if share < wants[turn]:
            heapq.heapreplace(queue, ((claimant.holding + share) / claimant.weight, turn))
        else:
            heapq.heappop(queue)
    return shares


def next_cursor(claimants: Sequence[Claimant], shares: Mapping[str, int], cursor: str) -> str:
    """Return the account after which the next pass starts: the one that got the last slot.

    Slots are given in the order of (level before the slot, turn), so the last went to the highest such pair. An account
    at the same level and later in turn got nothing, and comes first next time. Hence guarantee 10: while an account
    that holds nothing waits, each slot that goes elsewhere moves the cursor towards it, past another account.
    """
    levels = [(c.holding + shares[c.account] - 1) / c.weight if c.account in shares else -1.0 for c in claimants]
    top = max(levels, default=-1.0)
    if top < 0:
        return cursor
    last = max(turn for turn, level in enumerate(levels) if level == top)
    return claimants[last].account
