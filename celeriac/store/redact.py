"""Hide secrets in texts: plain strings are searched for in a text as it is, unescaped, and as letters alone. Pure.

Secret and text are cut into pieces of one length, and a piece of the text is hidden if it is one of a secret's. That
takes time and memory linear in either, whatever they consist of: no pattern is made of a secret. All texts of a JSON
value are searched as one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, product
from typing import Any, Final

from celeriac.store.pieces import PIECE, Pieces
from celeriac.store.seen import (
    COLLAPSED,
    DIGITS,
    OF_NUMBERS,
    OF_TEXTS,
    PARTS,
    UNQUOTED,
    UNSLASHED,
    WORDS,
    Origins,
    Removal,
    View,
    Way,
    folded,
    is_cut,
    levels,
    plain,
    traced,
)
from celeriac.store.spellings import COMPACT, SHORTEST, spellings

#: Stands for what is hidden.
HIDDEN: Final = "•••"

#: The most characters of all secrets of a call, and of a text, or all texts of a value: with more, all is hidden.
MOST_SECRET, MOST_TEXT = 8_192, 1024 * 1024

#: A text is an eighth of that if secrets have more short pieces than these: hundreds of values, or a thousand quotes.
MANY = 512

#: Characters beyond a cut that are searched as well, because the cut may leave a piece of a secret too short to find.
MARGIN = 1_000

#: Maximum number of texts whose redacted form is kept, and of characters of each: a failed run's error and traceback
#: are stored and logged.
KEPT, MOST_KEPT = 8, 16_384


class Secrets:
    """The secret values of a call, to be hidden in texts. They are read when the first text comes."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = values
        self._shown: dict[tuple[str, int], str] = {}

    @cached_property
    def _pieces(self) -> dict[View, Pieces] | None:
        """The pieces by view; None if the secrets are too long."""
        values = [value for value in self._values if value is not None and not isinstance(value, bool)]
        if sum(len(str(value)) for value in values) > MOST_SECRET:
            return None
        pieces: dict[View, Pieces] = defaultdict(Pieces)
        known: set[str] = set()
        for value in values:
            spelled = spellings(value)
            for number in spelled.digits:
                _add_whole(pieces[WORDS if len(number) >= COMPACT else DIGITS], number)
            for text in spelled.written:
                for form in levels(plain(text)):
                    if form not in known:
                        known.add(form)
                        _add(pieces, form)
            for text in spelled.encoded:
                _add_whole(pieces[WORDS], text)
        return dict(pieces)

    @cached_property
    def _most_text(self) -> int:
        short = sum(one.n_short for one in (self._pieces or {}).values())
        return MOST_TEXT if short <= MANY else MOST_TEXT // 8

    def without(self, text: str, most: int = MOST_TEXT) -> str:
        """Return the text, or its first `most` characters, with each secret and each piece of one hidden."""
        is_cut = len(text) > most
        if self._pieces is None or (most == MOST_TEXT and len(text) > self._most_text):
            return HIDDEN if text else text
        if not self._pieces:
            return text[:most]
        if (shown := self._shown.get((text, most))) is None:
            searched = text[: most + MARGIN] if is_cut else text
            mask = self._mask(plain(searched))
            shown = text[:most] if mask is None else _hidden(searched, mask, most)
            if len(self._shown) < KEPT and len(text) < MOST_KEPT:
                self._shown[text, most] = shown
        return shown

    def in_all(self, texts: Sequence[str], numbers: Sequence[str]) -> tuple[list[str], list[bool]] | None:
        """Return these texts without secrets, and which of these numbers are secret; None if there is nothing to hide.

        They are searched as one text: what that costs depends on how long they are, not on how many.
        """
        if self._pieces is not None and not self._pieces:
            return None
        joined = OF_TEXTS.join(map(plain, texts))
        if numbers:
            joined = OF_NUMBERS.join([joined, *numbers])
        if self._pieces is None or len(joined) > self._most_text:
            return [HIDDEN if text else text for text in texts], [True for _ in numbers]
        if (mask := self._mask(joined)) is None:
            return None
        places = accumulate([len(one) + 1 for one in (*(texts or ("",)), *numbers)], initial=0)
        masks = [mask[at : after - 1] for at, after in pairwise(places)]
        shown = [_hidden(*one, len(one[0])) if 1 in one[1] else one[0] for one in zip(texts, masks, strict=False)]
        return shown, [1 in one for one in masks[len(masks) - len(numbers) :]]

    def _mask(self, text: str) -> bytearray | None:
        """Return a mask of a `plain` text with 1 where there is a secret; None if there is none."""
        mask: bytearray | None = None
        origins: Origins | None = None
        has_cuts = is_cut(text)
        for level, seen in enumerate(levels(text)):
            for view, pieces in (self._pieces or {}).items():
                seen_as = [(pieces.hits(view.of(seen)), [view])]
                if has_cuts:
                    seen_as.append((pieces.cuts(view.of(PARTS.replaced(seen))), [PARTS, view]))
                for hits, views in seen_as:
                    if hits is not None:
                        mask, origins = mask or bytearray(len(text)), origins or Origins(text)
                        _mark(mask, hits, origins.of(level, views))
        return mask


def without(secrets: Secrets, value: Any) -> Any:
    """Return a text, or a JSON value with all its texts, keys and numbers, without these secrets.

    Keys that are the same once secrets are hidden are numbered.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return secrets.without(value)
    texts: list[str] = []
    numbers: list[str] = []
    _gather(value, texts, numbers)
    if not (texts or numbers) or (shown := secrets.in_all(texts, numbers)) is None:
        return value
    return _rebuilt(value, iter(shown[0]), iter(shown[1]))


def _gather(value: Any, texts: list[str], numbers: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, int | float):
        if not isinstance(value, bool):
            numbers.append(str(value))
    elif isinstance(value, list | tuple):
        for inner in value:
            _gather(inner, texts, numbers)
    elif value is not None and isinstance(value, Mapping):
        for name, inner in value.items():
            texts.append(str(name))
            _gather(inner, texts, numbers)


def _rebuilt(value: Any, texts: Iterator[str], numbers: Iterator[bool]) -> Any:
    """Return the value with these texts, in the order of `_gather`."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, Mapping):
        named: dict[str, Any] = {}
        alike: dict[str, int] = defaultdict(lambda: 1)
        for inner in value.values():
            name = once = next(texts)
            while name in named:
                alike[once] += 1
                name = f"{once} {alike[once]}"
            named[name] = _rebuilt(inner, texts, numbers)
        return named
    if isinstance(value, list | tuple):
        return [_rebuilt(inner, texts, numbers) for inner in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return HIDDEN if is_number and next(numbers) else value


def _add_whole(pieces: Pieces, text: str, *, anywhere: bool = False) -> None:
    pieces.add(text)
    pieces.add_edges(text, anywhere=anywhere)


def _add(pieces: dict[View, Pieces], spelling: str) -> None:
    """Add a spelling: its letters and digits, if they are enough to know it by, and with its other signs if it has any.
    A piece that is little but quotes or backslashes keeps them. Blanks alone give nothing away.
    """
    words = WORDS.of(spelling)
    if len(words) >= COMPACT:
        _add_whole(pieces[WORDS], words, anywhere=True)
        if len(words) == len(spelling):
            return
    unquoted = UNQUOTED.of(spelling)
    if len(unquoted) == len(spelling) and " " * PIECE not in spelling:
        _add_whole(pieces[UNQUOTED], unquoted, anywhere=True)
        return
    if len(unquoted) >= SHORTEST:
        pieces[UNQUOTED].add_edges(unquoted, anywhere=True)
    # Each once: what is quoted again and again has few that differ.
    for piece in {spelling[at : at + PIECE] for at in range(max(len(spelling) - PIECE, 0) + 1)}:
        if piece.isspace():
            continue
        for view in (UNQUOTED, UNSLASHED):
            if len(seen := view.of(piece)) >= SHORTEST:
                pieces[view].add(seen)
                break
        else:
            for seen in _quoted(COLLAPSED.replaced(piece)):
                pieces[COLLAPSED].add(folded(seen))


def _quoted(piece: str) -> Iterator[str]:
    """Yield the ways to write a piece of at most three characters:
    with and without a backslash where quoting may add one.
    """
    characters = re.findall(r"\\?[^\\]", piece)
    ways = [{c} if c[-1].isascii() and c[-1].isalnum() else {c[-1], f"\\{c[-1]}"} for c in characters]
    end = "\\" if piece.endswith("\\") else ""
    yield from ("".join(way) + end for way in product(*ways))


def _mark(mask: bytearray, hits: bytearray, ways: Sequence[Way | Removal]) -> None:
    """Mark the characters of the text that these hits in a view stand for."""
    for run in re.finditer(rb"\x01+", hits):
        begin, end = traced(ways, *run.span())
        mask[begin:end] = b"\1" * (end - begin)


def _hidden(text: str, mask: bytearray, most: int) -> str:
    shown, after = [], 0
    for run in re.finditer(rb"\x01+", mask):
        if run.start() >= most:
            break
        shown += [text[after : run.start()].rstrip("\\"), HIDDEN]
        after = run.end()
    return "".join([*shown, text[after:most]])
