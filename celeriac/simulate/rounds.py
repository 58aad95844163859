"""The promise of fairness, checked pass after pass (docs/guarantees.md, 10).

While an account with ready tasks holds no slot, no other account gets a second one. So fewer slots go to others than
there are accounts. The slots that a pass gave are checked, not the way it decided.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping


class Rounds:
    """The check. `passes`: the number of passes that gave slots. `broken`: those that broke the promise.

    `longest`: the most slots that others got while one account waited; a round has at most one for each of them.
    """

    def __init__(self, accounts: int) -> None:
        self.passes = self.broken = self.longest = 0
        self._slots = 0
        self._since: dict[int, tuple[int, int]] = {}  # the pass before its wait, and the slots until then
        self._oldest: list[tuple[int, int]] = []
        self._last = array("q", [-1]) * accounts

    def waits(self, account: int) -> None:
        """Record an account that has ready tasks and holds no slot."""
        self._since[account] = (self.passes, self._slots)
        heapq.heappush(self._oldest, (self.passes, account))

    def passed(self, slots: Mapping[int, int]) -> None:
        """Record the slots of a pass by account.

        A slot ends its account's wait; other slots of that pass do not count.
        """
        for account in slots:
            if (began := self._since.pop(account, None)) is not None:
                self.longest = max(self.longest, self._slots - began[1])
        if (since := self._first_that_waits()) is not None:
            self.broken += any(n > 1 or self._last[account] >= since for account, n in slots.items())
        for account in slots:
            self._last[account] = self.passes
        self._slots += sum(slots.values())
        self.passes += bool(slots)

    def _first_that_waits(self) -> int | None:
        while self._oldest and self._since.get(self._oldest[0][1], (-1,))[0] != self._oldest[0][0]:
            heapq.heappop(self._oldest)
        return self._oldest[0][0] if self._oldest else None
