"""Accounts with ready tasks in rotation order, as the walk over the index `ready_in_order` finds them.

They are a set of small numbers, stored as bits: a million accounts take 128 kB, and finding the next takes a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, takewhile

#: Bits of a word; a summary has a bit for each word that is not empty.
WIDTH = 1024


class Rotation:
    """A set of numbers from 0 to `size` - 1."""

    def __init__(self, size: int) -> None:
        self._words = [0] * (size // WIDTH + 1)
        self._summary = 0

    def add(self, number: int) -> None:
        word, place = divmod(number, WIDTH)
        self._words[word] |= 1 << place
        self._summary |= 1 << word

    def discard(self, number: int) -> None:
        word, place = divmod(number, WIDTH)
        self._words[word] &= ~(1 << place)
        if not self._words[word]:
            self._summary &= ~(1 << word)

    def walk(self, first: int) -> Iterator[int]:
        """Yield all numbers: from `first` to the end, then from 0 to `first`."""
        return chain(self._onward(first), takewhile(lambda number: number < first, self._onward(0)))

    def _onward(self, first: int) -> Iterator[int]:
        start, place = divmod(first, WIDTH)
        for word in _bits(self._summary >> start << start):
            bits = self._words[word]
            for bit in _bits(bits >> place << place if word == start else bits):
                yield word * WIDTH + bit


def _bits(word: int) -> Iterator[int]:
    while word:
        lowest = word & -word
        yield lowest.bit_length() - 1
        word ^= lowest
