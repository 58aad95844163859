"""Sweeps work in bounded batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

#: Rows a transaction: few enough that whoever meets its locks hardly waits.
BATCH = 200

P = TypeVar("P")


class Walk(Generic[P]):
    """A walk of so many batches a sweep at most; one that has not come to the end goes on there the next time.

    A batch starts at a place and returns how many rows it repaired, and where to go on: None at the end.
    """

    def __init__(self, first: P, batches: int) -> None:
        self.first = self.place = first
        self.batches = batches

    def sweep(self, batch: Callable[[P], tuple[int, P | None]]) -> int:
        """How many rows were repaired. One that fails begins anew the next time."""
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
