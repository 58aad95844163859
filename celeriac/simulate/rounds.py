"""The promise of fairness, checked pass after pass (docs/guarantees.md, 10).

While an account waits that holds nothing, no other gets a second slot. So fewer slots go elsewhere than there are
accounts. Each pass is checked by what it gave, not by how it decided.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping


class Rounds:
    """The check. `passes`: how many gave something. `broken`: those in which the promise was not kept.

    `longest`: the most slots that went elsewhere while one account waited; a round is at most one for each other.
    """

    def __init__(self, accounts: int) -> None:
        self.passes = self.broken = self.longest = 0
        self._slots = 0
        self._since: dict[int, tuple[int, int]] = {}  # the pass before its wait, and the slots until then
        self._oldest: list[tuple[int, int]] = []
        self._last = array("q", [-1]) * accounts

    def waits(self, account: int) -> None:
        """Note an account that has something ready and holds nothing."""
        self._since[account] = (self.passes, self._slots)
        heapq.heappush(self._oldest, (self.passes, account))

    def passed(self, slots: Mapping[int, int]) -> None:
        """Note what a pass gave each account. Its own slot ends an account's round; others' in that pass are level."""
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
