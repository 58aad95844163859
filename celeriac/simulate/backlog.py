"""A role's rows in Postgres, simulated: ready tasks, slots held by accounts, and one pass, as `Dispatcher.run_pass`.

The passes' own code decides which accounts get slots. `tests/postgres/test_simulated_passes.py` compares the choices.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from celeriac.dispatch.fairness import Claimant, allocate, in_turn, next_cursor
from celeriac.simulate.rounds import Rounds
from celeriac.simulate.turns import Rotation


class SimulatedTask(NamedTuple):
    """A task. Its first fields give the order within an account: highest priority, first due, lowest id.

    `account`: the index of its name among all accounts' names. `seconds`: its duration. `key`: its lock key.
    `later`: True if no wake-up is sent when its time comes. `line`: its role's index in the fleet.
    `after`: its part of the seconds between its ticket's end and its process' next ticket; None: by its line's pace.
    `is_last`: True if it does not run again.
    """

    rank: int
    due: float
    id: int
    account: int
    seconds: float
    key: str | None = None
    losses: int = 0
    later: bool = False
    line: int = 0
    after: float | None = None
    is_last: bool = True


class SimulatedPolicy(NamedTuple):
    """An operator's policy for an account; `cap` None: no bound."""

    weight: float = 1.0
    cap: int | None = None


_USUAL = SimulatedPolicy()


class Backlog:
    """A role's backlog. `names`: the accounts', sorted as the database sorts them."""

    def __init__(self, names: Sequence[str], policies: Mapping[int, SimulatedPolicy] | None = None) -> None:
        self.names = names
        self.policies = policies or {}
        self.rounds = Rounds(len(names))
        self.ready: dict[int, list[SimulatedTask]] = {}
        self.holding: dict[int, int] = {}
        self.waiting = self.active = 0
        self.cursor = ""
        self._turns = Rotation(len(names))

    def add(self, task: SimulatedTask) -> None:
        """Add a task that is ready."""
        account = task.account
        if (entries := self.ready.get(account)) is None:
            entries = self.ready[account] = []
            self._turns.add(account)
            self._if_it_waits(account)
        heapq.heappush(entries, task)
        self.waiting += 1

    def run_pass(self, free: int) -> list[SimulatedTask]:
        """Run one pass and return the tasks it claims, in the order of the tickets: accounts take turns."""
        if free <= 0 or not self.waiting:
            return []
        # As in `select.accounts`: accounts beyond so many could get no slot.
        first = bisect_right(self.names, self.cursor)
        most = free + len(self.holding)
        walk = list(islice(self._turns.walk(first), most))
        claimants = [self._claimant(account, free) for account in walk]
        if len(walk) < most:
            claimants = in_turn(claimants, self.cursor, free)
        slots = allocate(claimants, free)
        self.cursor = next_cursor(claimants, slots, self.cursor)
        places = {self.names[account]: account for account in walk}
        shares = {places[name]: n for name, n in slots.items()}
        self.rounds.passed(shares)
        return _taking_turns([self._claim(account, n) for account, n in shares.items()])

    def settle(self, task: SimulatedTask) -> None:
        """Remove a task that has ended or was released."""
        self.active -= 1
        held = self.holding.pop(task.account) - 1
        if held:
            self.holding[task.account] = held
        elif task.account in self.ready:
            self._if_it_waits(task.account)

    def _claimant(self, account: int, free: int) -> Claimant:
        weight, cap = self.policies.get(account, _USUAL)
        waiting = min(len(self.ready[account]), free)
        return Claimant(self.names[account], waiting, self.holding.get(account, 0), weight, cap)

    def _claim(self, account: int, n: int) -> list[SimulatedTask]:
        entries = self.ready[account]
        taken = [heapq.heappop(entries) for _ in range(n)]
        if not entries:
            del self.ready[account]
            self._turns.discard(account)
        self.holding[account] = self.holding.get(account, 0) + n
        self.waiting -= n
        self.active += n
        return taken

    def _if_it_waits(self, account: int) -> None:
        if account not in self.holding and self.policies.get(account, _USUAL).cap != 0:
            self.rounds.waits(account)


def _taking_turns(taken: Sequence[Sequence[SimulatedTask]]) -> list[SimulatedTask]:
    longest = max(map(len, taken), default=0)
    return [some[rank] for rank in range(longest) for some in taken if rank < len(some)]
