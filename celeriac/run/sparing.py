"""Sparing: log a few of many equal lines each minute, then how many were left out. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

#: Maximum number of lines of a kind that are logged within a period, its seconds, and the maximum number of kinds that
#: are tracked at once.
FEW, WITHIN, KEYS = 5, 60.0, 1_000


@dataclass(slots=True)
class _Said:
    since: float
    n: int = 0
    left_out: int = 0


class Sparing:
    """Counts the lines of one process. `now` is any clock of seconds that never goes back."""

    def __init__(self) -> None:
        self._said: dict[Hashable, _Said] = {}

    def admit(self, what: Hashable, now: float) -> int | None:
        """Return None to leave it out, else how many like it were left out since it was last logged."""
        known = self._said.get(what)
        if known is None:
            if len(self._said) >= KEYS:
                self._said.clear()
            known = self._said[what] = _Said(now)
        if now - known.since >= WITHIN:
            known.since, known.n = now, 0
        known.n += 1
        if known.n > FEW:
            known.left_out += 1
            return None
        before, known.left_out = known.left_out, 0
        return before
