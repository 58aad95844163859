"""Hide secrets in texts: plain strings are searched for in the text as it is and unescaped. Pure.

Secret and text are cut into pieces of one length, and a piece of the text is hidden if it is one of a secret's. That
takes time and memory linear in either, whatever they consist of: no pattern is made of a secret.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, Final

from celeriac.store.spellings import SEPARATORS, SHORTEST, spellings

#: The text in place of a hidden one.
HIDDEN: Final = "•••"

#: The length of a piece (characters): so many characters of a secret are hidden like the whole of it.
PIECE: Final = 12

#: The most characters of all secrets of a call, and of a text: with more, the text is hidden as a whole.
MOST_SECRET, MOST_TEXT = 8_192, 4 * 1024 * 1024

#: How many times in a row a text is unescaped; backslashes in a row count once.
LEVELS = 3

#: Six characters at every seventh place of a secret are a seed, and each piece contains one: without a seed in the text
#: there is no piece in it. With more than `FEW_SEEDS`, finding each takes longer than searching everywhere.
SEED, FEW_SEEDS = PIECE // 2, 256

#: How many more characters are searched of a text that will be cut, so that the cut does not leave a piece too short to
#: find.
MARGIN = 1_000

#: Replaced by the same number of characters: capital letters by small ones, because hexadecimal digits come in either
#: case; control characters by the letters that stand for them after a backslash; plus signs by blanks, as in a URL.
_FOLDED = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ+\n\r\t\a\b\f\v", b"abcdefghijklmnopqrstuvwxyz nrtabfv")

#: Characters that quoting adds, and doubles: a text is searched without them.
_QUOTES = re.compile(r"""[\\'"]+""")
_BACKSLASHES = re.compile(r"\\+")

#: The pattern begins with the separator, so that the search skips from one to the next; a digit comes before it.
_BETWEEN_DIGITS = re.compile(rf"[{SEPARATORS}](?<=[0-9].)[{SEPARATORS}]{{0,2}}(?=[0-9])", re.DOTALL)

#: A character beyond ASCII, as UTF-8 in percent signs.
_TAIL = "%[89abAB][0-9a-fA-F]"
_OF_UTF_8 = rf"(?:%[cCdD][0-9a-fA-F]|%[eE][0-9a-fA-F]{_TAIL}|%[fF][0-4]{_TAIL}{_TAIL}){_TAIL}"

#: Each match is one character. All backslashes before it are taken at once, from the first on: nothing is tried twice.
_ESCAPE = re.compile(
    r"\\(?<!\\\\)\\*+(?:u([dD][89abAB][0-9a-fA-F]{2})\\++u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"
    rf"|({_OF_UTF_8})"
    r"|%([0-9a-fA-F]{2})|&(?:#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6})|(amp|lt|gt|quot|apos));"
)
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def _character(escape: re.Match[str]) -> str:
    high, low, *codes, octal, of_utf_8, percent, decimal, code, name = escape.groups()
    if name is not None:
        return _NAMED[name]
    if of_utf_8 is not None:
        shown = bytes.fromhex(of_utf_8.replace("%", "")).decode("utf-8", "replace")
        return shown if len(shown) == 1 else "\ufffd"
    if high is not None:
        return chr(0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00)
    hexadecimal = next((one for one in (*codes, percent, code) if one is not None), None)
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return chr(number) if number < 0x110000 else "\ufffd"


#: A view of a text: a pattern, and what replaces each match, one character or none.
_View = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]
_UNESCAPED: Final[_View] = (_ESCAPE, _character)
_UNQUOTED: Final[_View] = (_QUOTES, "")
_UNSLASHED: Final[_View] = (_BACKSLASHES, "")
_COLLAPSED: Final[_View] = (_BACKSLASHES, r"\\")
_DIGITS: Final[_View] = (_BETWEEN_DIGITS, "")


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The pieces of all secrets in one view of the text, by their length, and the seeds to find them by.

    `seeds`: each with its spellings. They are cut into pieces only when the seed is in a text, because that is rare and
    the most expensive step.
    """

    sized: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    seeds: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    cut: set[str] = field(default_factory=set)

    def add_all(self, text: str) -> None:
        """Add each piece of the text."""
        if len(text) < PIECE:
            self.add(text)
            return
        _ = self.sized[PIECE]  # adding it at the first search would change the mapping under another thread
        for at in range(0, len(text) - SEED + 1, PIECE - SEED + 1):
            self.seeds[text[at : at + SEED]].append(text)

    def add(self, piece: str) -> None:
        self.sized[len(piece)].add(piece)
        self.seeds.setdefault(piece, [])

    def places(self, text: str) -> list[tuple[int, int]]:
        """Return the places in the text at which pieces begin and end."""
        begins: Collection[int]
        if len(self.seeds) > FEW_SEEDS:
            begins = range(len(text))
            self._cut(self.seeds)
        else:
            present = [seed for seed in self.seeds if seed in text]
            begins = _near(text, present)
            self._cut(present)
        return [(at, at + size) for at in begins for size, those in self.sized.items() if text[at : at + size] in those]

    def _cut(self, seeds: Iterable[str]) -> None:
        """Cut the spellings of these seeds into pieces, unless that was done."""
        for seed in seeds:
            if spelled := self.seeds[seed]:
                for text in {*spelled} - self.cut:
                    self.sized[PIECE].update([text[at : at + PIECE] for at in range(len(text) - PIECE + 1)])
                    self.cut.add(text)
                self.seeds[seed] = []


def _near(text: str, seeds: Iterable[str]) -> set[int]:
    """Return the places in the text at which a piece with one of the seeds may begin."""
    begins: set[int] = set()
    for seed in seeds:
        at = text.find(seed)
        while at >= 0:
            begins.update(range(max(at - PIECE + len(seed), 0), at + 1))
            at = text.find(seed, at + 1)
    return begins


class Secrets:
    """The secret values of a call, to be hidden in texts. They are read when the first text comes."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = values

    @cached_property
    def _pieces(self) -> dict[_View, _Pieces] | None:
        """The pieces by view; None if the secrets are too long."""
        values = [value for value in self._values if value is not None and not isinstance(value, bool)]
        if sum(len(str(value)) for value in values) > MOST_SECRET:
            return None
        pieces: dict[_View, _Pieces] = defaultdict(_Pieces)
        for value in values:
            spelled = spellings(value)
            for number in spelled.digits:
                pieces[_DIGITS].add_all(number)
            for text in spelled.written:
                for form in _levels(text):
                    _add(pieces, form)
            for text in spelled.encoded:
                pieces[_UNQUOTED].add_all(text.replace("+", " "))  # small letters, as in the text that is searched
        return pieces

    def without(self, text: str, most: int = MOST_TEXT) -> str:
        """Return the text, or its first `most` characters, with each secret and each piece of one hidden."""
        is_cut = len(text) > most
        if self._pieces is None or (is_cut and most == MOST_TEXT):
            return HIDDEN if text else text
        if not self._pieces:
            return text[:most]
        searched = text[: most + MARGIN] if is_cut else text
        mask: bytearray | None = None
        for level, seen in enumerate(_levels(searched)):
            for view, pieces in self._pieces.items():
                viewed = _folded(_replaced(seen, view))
                if places := pieces.places(viewed):
                    views = [*[_UNESCAPED] * level, view] if len(viewed) < len(searched) else []
                    mask = mask or bytearray(len(searched))
                    _mark(mask, searched, views, places)
        return text[:most] if mask is None else _hidden(searched, mask, most)


def without(secrets: Secrets, value: Any) -> Any:
    """Return a text, or a JSON value with all its texts, keys and numbers, without these secrets."""
    if isinstance(value, str):
        return secrets.without(value)
    if isinstance(value, Mapping):
        return {secrets.without(str(name)): without(secrets, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without(secrets, inner) for inner in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return HIDDEN if is_number and HIDDEN in secrets.without(str(value)) else value


def _add(pieces: dict[_View, _Pieces], spelling: str) -> None:
    """Add a spelling's pieces. A piece that consists mostly of quotes or backslashes keeps them. A piece of blanks
    alone is no secret.
    """
    if _QUOTES.search(spelling) is None and " " * PIECE not in spelling:
        pieces[_UNQUOTED].add_all(_folded(spelling))
        return
    for at in range(max(len(spelling) - PIECE, 0) + 1):
        if (piece := spelling[at : at + PIECE]).isspace():
            continue
        for view in (_UNQUOTED, _UNSLASHED):
            if len(seen := _replaced(piece, view)) >= SHORTEST:
                pieces[view].add(_folded(seen))
                break
        else:
            for seen in _quoted(_replaced(piece, _COLLAPSED)):
                pieces[_COLLAPSED].add(_folded(seen))


def _quoted(piece: str) -> Iterator[str]:
    """Yield the ways to write a piece of at most three characters:
    with and without a backslash where quoting may add one.
    """
    characters = re.findall(r"\\?[^\\]", piece)
    ways = [{c} if c[-1].isascii() and c[-1].isalnum() else {c[-1], f"\\{c[-1]}"} for c in characters]
    end = "\\" if piece.endswith("\\") else ""
    yield from ("".join(way) + end for way in product(*ways))


def _levels(text: str) -> Iterator[str]:
    """Yield the text as it is, unescaped, and unescaped again."""
    yield text
    for _ in range(LEVELS):
        if not ("\\" in text or "%" in text or "&" in text) or _ESCAPE.search(text) is None:
            return
        text = _replaced(text, _UNESCAPED)
        yield text


def _replaced(text: str, view: _View) -> str:
    pattern, instead = view
    return pattern.sub(instead, text)


def _folded(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").translate(_FOLDED).decode("utf-8", "surrogatepass")


def _mark(mask: bytearray, text: str, views: Sequence[_View], places: Sequence[tuple[int, int]]) -> None:
    """Mark the characters of the text that the view's pieces stand for."""
    begins, ends = _sources(text, views)
    for first, last in places:
        begin, end = begins[first], ends[last - 1]
        mask[begin:end] = b"\1" * (end - begin)


def _sources(text: str, views: Sequence[_View]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the places in the text at which each character of the view begins and ends."""
    begins: Sequence[int] = range(len(text))
    ends: Sequence[int] = range(1, len(text) + 1)
    for pattern, instead in views:
        new_begins: list[int] = []
        new_ends: list[int] = []
        after = 0
        for match in pattern.finditer(text):
            new_begins += begins[after : match.start()]
            new_ends += ends[after : match.start()]
            if instead:
                new_begins.append(begins[match.start()])
                new_ends.append(ends[match.end() - 1])
            after = match.end()
        new_begins += begins[after:]
        new_ends += ends[after:]
        begins, ends = new_begins, new_ends
        text = pattern.sub(instead, text)
    return begins, ends


def _hidden(text: str, mask: bytearray, most: int) -> str:
    shown, after = [], 0
    for run in re.finditer(rb"\x01+", mask):
        if run.start() >= most:
            break
        shown += [text[after : run.start()].rstrip("\\"), HIDDEN]
        after = run.end()
    return "".join([*shown, text[after:most]])
