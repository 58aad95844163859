"""Find the pieces of secrets in a text, in time linear in both. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from celeriac.store.seen import OF_CUTS, OF_NUMBERS, OF_TEXTS
from celeriac.store.spellings import SHORTEST

#: The length of a piece (characters): so many of a secret give it away as all of it does.
PIECE = 12

#: Each piece has a place whose number is a multiple of `STRIDE`, in a text as in a secret, from which six of its
#: characters follow: where there is no such seed, there is no piece. Up to `FEW` seeds are searched for one by one, and
#: more in a text so short that they come to `AT_ONCE` characters in all. Beyond, it takes less time to look at every
#: seventh place of the text.
SEED, STRIDE, FEW, AT_ONCE = PIECE // 2, PIECE - PIECE // 2 + 1, 48, 250_000

_BETWEEN = re.compile(f"[{OF_TEXTS}{OF_CUTS}]")

#: Maximum characters that may be left of a cut escape, beside those left of the secret.
ESCAPE = 5

#: The beginning and the end of a piece.
Place = tuple[int, int]


class Pieces:
    """The pieces of all secrets as one view of a text shows them.

    Once all are added, several threads may search with it: what is filled later is complete before it is relied on, and
    no mapping that is gone through gets another key.
    """

    def __init__(self) -> None:
        self.sized: defaultdict[int, set[str]] = defaultdict(set)
        self.seeds: defaultdict[str, list[str]] = defaultdict(list)
        self.begins: dict[str, list[tuple[str, bool]]] = {}
        self.ends: dict[str, list[tuple[str, bool]]] = {}
        self.of_cuts: list[str] = []
        # Filled as they are needed: most texts have none of it.
        self.pieces: set[str] = set()
        self.grams: set[str] = set()
        self.starts: set[str] = set()
        self.cut: set[str] = set()
        self.first: dict[str, bool] = {}
        self.last: dict[str, bool] = {}
        self.is_cut = False

    def add(self, text: str) -> None:
        """Add each piece of a spelling: all of it if it is shorter than a piece."""
        if len(text) < PIECE:
            self.sized[len(text)].add(text)
            return
        for at in range(0, len(text) - SEED + 1, STRIDE):
            self.seeds[text[at : at + SEED]].append(text)

    def add_edges(self, text: str, *, anywhere: bool) -> None:
        """Add what is left of a spelling where a text was cut; `anywhere`: also where it begins and ends."""
        if not anywhere:
            self.of_cuts.append(text)
            return
        self.begins.setdefault(text[:SHORTEST], []).append((text[: PIECE - 1], True))
        self.ends.setdefault(text[-SHORTEST:], []).append((text[1 - PIECE :], True))

    def hits(self, text: str) -> bytearray | None:
        """Return a mask of the text with 1 where a piece is; None if there is none."""
        short = self._short_places(text) if self.sized else ()
        long = self._places(text) if self.seeds and len(text) >= PIECE and self._may_be_in(text) else ()
        return _mask(text, chain(short, long, self._edges(text)))

    def cuts(self, text: str) -> bytearray | None:
        """Return such a mask of what is left of secrets where the text was cut."""
        if self.of_cuts:
            begins = {gram: [*forms] for gram, forms in self.begins.items()}
            ends = {gram: [*forms] for gram, forms in self.ends.items()}
            for form in self.of_cuts:
                begins.setdefault(form[:SHORTEST], []).append((form[: PIECE - 1], False))
                ends.setdefault(form[-SHORTEST:], []).append((form[1 - PIECE :], False))
            self.begins, self.ends = begins, ends
            self.of_cuts = []
        return _mask(text, self._edges(text))

    @property
    def n_short(self) -> int:
        """How many there are that are shorter than a piece."""
        return sum(map(len, self.sized.values()))

    def _may_be_in(self, text: str) -> bool:
        """Return whether a piece may be in the text; those that may are cut."""
        if self.is_cut:
            return True
        if len(self.seeds) > FEW and len(self.seeds) * len(text) > AT_ONCE:
            self._cut(form for forms in self.seeds.values() for form in forms)
            self.is_cut = True
            return True
        present = [seed for seed in self.seeds if seed in text]
        self._cut(form for seed in present for form in self.seeds[seed])
        return bool(present)

    def _cut(self, forms: Iterable[str]) -> None:
        for form in forms:
            if form not in self.cut:
                self.pieces.update([form[at : at + PIECE] for at in range(len(form) - PIECE + 1)])
                self.grams.update([form[at : at + SEED] for at in range(len(form) - SEED + 1)])
                self.cut.add(form)

    def _places(self, text: str) -> Iterator[Place]:
        """Yield where pieces are: those that overlap, or follow one another, as one place."""
        grams, pieces, last = self.grams, self.pieces, len(text) - PIECE
        seeds = [at for at in range(0, len(text) - SEED + 1, STRIDE) if text[at : at + SEED] in grams]
        first = upto = -1
        for at in [
            at for seed in seeds for at in range(max(seed - SEED, 0), min(seed, last) + 1)
            if text[at : at + PIECE] in pieces
        ]:  # fmt: skip
            if at > upto:
                if upto >= 0:
                    yield first, upto
                first = at
            upto = at + PIECE
        if upto >= 0:
            yield first, upto

    def _short_places(self, text: str) -> Iterator[Place]:
        """Yield places of what is shorter than a piece: where much begins so, only of the longest that begins there."""
        if self.n_short <= FEW:
            for size, those in self.sized.items():
                for piece in those:
                    at = text.find(piece)
                    while at >= 0:
                        yield at, at + size
                        at = text.find(piece, at + 1)
            return
        shortest = min(*self.sized, SHORTEST)
        if not self.starts:
            self.starts = {piece[:shortest] for those in self.sized.values() for piece in those}
        starts, sized = self.starts, sorted(self.sized.items(), reverse=True)
        for at in [at for at in range(len(text) - shortest + 1) if text[at : at + shortest] in starts]:
            for size, those in sized:
                if text[at : at + size] in those:
                    yield at, at + size
                    break

    def _edges(self, text: str) -> Iterator[Place]:
        """Yield the beginning of a secret where a text ends, and the end of one where it begins, from four characters
        on. What is nothing but that may be anything, unless it was cut. Numbers are not cut.
        """
        if len(self.begins) <= FEW and not (_has_any(text, self.begins) or _has_any(text, self.ends)):
            return
        upto = text.find(OF_NUMBERS)
        upto = len(text) if upto < 0 else upto
        first, before = 0, OF_TEXTS
        for between in _BETWEEN.finditer(text, 0, upto) if OF_TEXTS in text or OF_CUTS in text else ():
            yield from self._edges_of(text, first, between.start(), before == OF_CUTS, between[0] == OF_CUTS)
            first, before = between.end(), between[0]
        yield from self._edges_of(text, first, upto, before == OF_CUTS, False)

    def _edges_of(self, text: str, first: int, end: int, is_cut_before: bool, is_cut_after: bool) -> Iterator[Place]:
        begins, ends = self.begins, self.ends
        least = max(first, end - PIECE + 1 - (ESCAPE if is_cut_after else 0))
        for at in [at for at in range(least, end - SHORTEST + 1) if text[at : at + SHORTEST] in begins]:
            known = _spelled(self.first, begins, text[at : at + SHORTEST], are_ends=False)
            for after in range(end, max(at + SHORTEST, end - ESCAPE) - 1, -1) if is_cut_after else (end,):
                if (anywhere := known.get(text[at:after])) is not None and (is_cut_after or (anywhere and at > first)):
                    yield at, end
                    break
        most = min(end, first + PIECE - 1 + (ESCAPE if is_cut_before else 0))
        for at in [at for at in range(first + SHORTEST, most + 1) if text[at - SHORTEST : at] in ends]:
            known = _spelled(self.last, ends, text[at - SHORTEST : at], are_ends=True)
            for begin in range(first, min(at - SHORTEST, first + ESCAPE) + 1) if is_cut_before else (first,):
                if (anywhere := known.get(text[begin:at])) is not None and (is_cut_before or (anywhere and at < end)):
                    yield first, at
                    break


def _spelled(
    known: dict[str, bool], forms: dict[str, list[tuple[str, bool]]], gram: str, *, are_ends: bool
) -> dict[str, bool]:
    """Return all known beginnings of spellings, or ends; those that begin, or end, so are added."""
    for form, anywhere in forms[gram]:
        for size in range(SHORTEST, len(form) + 1):
            edge = form[-size:] if are_ends else form[:size]
            known[edge] = known.get(edge, False) or anywhere
    forms[gram] = []  # at last: another thread finds what is added, or adds it as well
    return known


def _has_any(text: str, grams: Iterable[str]) -> bool:
    return any(map(text.__contains__, grams))


def _mask(text: str, places: Iterable[Place]) -> bytearray | None:
    mask: bytearray | None = None
    for begin, end in places:
        mask = mask or bytearray(len(text))
        mask[begin:end] = b"\1" * (end - begin)
    return mask
