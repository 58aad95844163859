"""Bounded batches of sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

#: Rows in a transaction: few enough that others hardly wait for its locks.
BATCH = 200

P = TypeVar("P")


class Walk(Generic[P]):
    """A walk of at most so many batches a sweep; if it does not reach the end, the next sweep goes on there.

    A batch starts at a place and returns how many rows it repaired, and where to go on: None at the end.
    """

    def __init__(self, first: P, batches: int) -> None:
        self.first = self.place = first
        self.batches = batches

    def sweep(self, batch: Callable[[P], tuple[int, P | None]]) -> int:
        """Run the walk and return how many rows were repaired. After an error the next sweep begins anew."""
        place, self.place = self.place, self.first
        repaired = 0
        for _ in range(self.batches):
            some, following = batch(place)
            repaired += some
            if following is None:
                return repaired
            place = following
        self.place = place
        return repaired
