"""The ways a text is seen when secrets are searched for in it: unescaped, and without what writing adds. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html.entities import html5
from itertools import compress
from typing import Final

from celeriac.store.spellings import SEPARATORS

#: Maximum number of times that a text is unescaped; backslashes in a row count once, however many there are.
LEVELS = 3

#: Separators between texts that are searched together: of numbers, of texts, and of the parts of a cut text. No view
#: removes them.
OF_NUMBERS, OF_TEXTS, OF_CUTS = "\x1d", "\x1e", "\x1f"

#: INVARIANT: no text and no secret that is searched has one of these itself: there each is this other separator, which
#: is as long, so that all places stay the same.
_OTHER: Final = "\x1c"
_OTHERS = dict.fromkeys(map(ord, OF_NUMBERS + OF_TEXTS + OF_CUTS), _OTHER)

#: Replaced by the same number of characters: letters by small ones, as hexadecimal digits are written in either case;
#: control characters by the letters that stand for them behind a backslash; plus signs by the blanks they are in a URL.
_FOLDED = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ+\n\r\t\a\b\f\v", b"abcdefghijklmnopqrstuvwxyz nrtabfv")

#: The rest of a character beyond ASCII, as UTF-8 in percent signs.
_TAIL = "%[89abAB][0-9a-fA-F]"
_OF_UTF_8 = rf"(?:[cCdD][0-9a-fA-F]|[eE][0-9a-fA-F]{_TAIL}|[fF][0-4]{_TAIL}{_TAIL}){_TAIL}"

#: Each match is one character. All backslashes before it are taken at once, from the first on: nothing is tried twice.
#: It begins with the signs of all escapes, as the search then leaps from one to the next.
_ESCAPE = re.compile(
    r"[\\%&](?:(?<=\\)(?<!\\\\)\\*+(?:u([dD][89abAB][0-9a-fA-F]{2})\\++u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([nrt]))"
    rf"|(?<=%)(?:({_OF_UTF_8})|([0-9a-fA-F]{{2}})|u([0-9a-fA-F]{{4}}))"
    r"|(?<=&)(?:#([0-9]{1,7});?|#[xX]([0-9a-fA-F]{1,6});?|([A-Za-z][A-Za-z0-9]{1,31});))"
)
_BLANKS = {"n": "\n", "r": "\r", "t": "\t"}


def _character(escape: re.Match[str]) -> str:
    high, low, of_x, of_u, braced, of_big_u, octal, blank, of_utf_8, percent, percent_u, decimal, code, name = (
        escape.groups()
    )
    if name is not None:
        shown = html5.get(f"{name};", "")
        return shown if len(shown) == 1 else "\ufffd"
    if of_utf_8 is not None:
        shown = bytes.fromhex(of_utf_8.replace("%", "")).decode("utf-8", "replace")
        return shown if len(shown) == 1 else "\ufffd"
    if high is not None:
        return chr(0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00)
    if blank is not None:
        return _BLANKS[blank]
    codes = (of_x, of_u, braced, of_big_u, percent, percent_u, code)
    hexadecimal = next((one for one in codes if one is not None), None)
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return _OTHERS.get(number) or chr(number) if number < 0x110000 else "\ufffd"


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A way to see a text: all of it but what `pattern` matches, which becomes `instead`, one character or none.

    `without`: the characters of ASCII that go; if these are all the pattern matches, the pattern is only needed to find
    out where in the text something stood.
    """

    pattern: re.Pattern[str]
    instead: str | Callable[[re.Match[str]], str] = ""
    without: bytes | None = None

    def of(self, text: str) -> str:
        """Return what is seen, folded."""
        if self.without is None:
            return folded(self.replaced(text))
        if not text.isascii():
            text = _small(_BETWEEN_WORDS.sub("", text) if self is WORDS else text)
        seen = text.encode("utf-8", "surrogatepass").translate(_FOLDED, self.without)
        return seen.decode("utf-8", "surrogatepass")

    def replaced(self, text: str) -> str:
        return self.pattern.sub(self.instead, text)


_BETWEEN_WORDS = re.compile(rf"(?:[^\w{OF_NUMBERS}-{OF_CUTS}]|_)+")

UNESCAPED: Final = View(_ESCAPE, _character)

#: Quotes and backslashes are what quoting adds, and doubles.
UNQUOTED: Final = View(re.compile(r"""[\\'"]+"""), without=b"\\'\"")
UNSLASHED: Final = View(re.compile(r"\\+"), without=b"\\")
COLLAPSED: Final = View(re.compile(r"\\+"), r"\\")

#: Letters and digits alone: however a text is grouped, wrapped, quoted or joined by other signs.
WORDS: Final = View(
    _BETWEEN_WORDS,
    without=bytes(c for c in range(128) if not chr(c).isalnum() and chr(c) not in OF_NUMBERS + OF_TEXTS + OF_CUTS),
)

#: Numbers without what is between their digits. The separator comes first, as the search then leaps from one to the
#: next; what is before it is a digit.
DIGITS: Final = View(re.compile(rf"[{SEPARATORS}](?<=[0-9].)[{SEPARATORS}]{{0,2}}(?=[0-9])", re.DOTALL))

#: A text in the parts that a cut has left of it.
PARTS: Final = View(re.compile(r"[ \t\n]?[\[(<]?(?:\.{3,}|…)[\])>]?[ \t\n]?"), OF_CUTS)


def is_cut(text: str) -> bool:
    """Return whether a library has cut a text, or a part of it."""
    return "..." in text or "…" in text


def levels(text: str) -> Iterator[str]:
    """Yield the text as it is, unescaped, and unescaped again."""
    yield text
    for _ in range(LEVELS):
        if not ("\\" in text or "%" in text or "&" in text) or _ESCAPE.search(text) is None:
            return
        text = UNESCAPED.replaced(text)
        yield text


def plain(text: str) -> str:
    """Return a text of this length that has none of the signs that stand between texts."""
    has_any = OF_NUMBERS in text or OF_TEXTS in text or OF_CUTS in text
    return text.translate(_OTHERS) if has_any else text


def folded(text: str) -> str:
    if not text.isascii():
        text = _small(text)
    return text.encode("utf-8", "surrogatepass").translate(_FOLDED).decode("utf-8", "surrogatepass")


class Way:
    """Where in a text each character of a view stands, by the stretches that the view leaves as they are."""

    def __init__(self, view: View, text: str) -> None:
        #: Of each stretch: its place in the view, its place in the text, and the end of the match that one character
        #: stands for, or 0.
        self.seen: list[int] = []
        self.begins: list[int] = []
        self.ends: list[int] = []
        place = after = 0
        for match in view.pattern.finditer(text):
            start, end = match.span()
            if start > after:
                place = self._add(place, after, 0, start - after)
            if view.instead:
                place = self._add(place, start, end, 1)
            after = end
        self._add(place, after, 0, len(text) - after)

    def _add(self, place: int, begin: int, end: int, size: int) -> int:
        self.seen.append(place)
        self.begins.append(begin)
        self.ends.append(end)
        return place + size

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return where in the text these characters of the view, and all between them, begin and end."""
        stretch = bisect_right(self.seen, first) - 1
        begin = self.begins[stretch] + (0 if self.ends[stretch] else first - self.seen[stretch])
        stretch = bisect_right(self.seen, last) - 1
        return begin, self.ends[stretch] or self.begins[stretch] + last - self.seen[stretch] + 1


class Removal:
    """The same of a view that only removes characters of ASCII, of a text that has no others: ten times as fast."""

    def __init__(self, removed: bytes, text: str) -> None:
        self.places = list(compress(range(len(text)), text.encode().translate(_kept(removed))))

    def span(self, first: int, last: int) -> tuple[int, int]:
        return self.places[first], self.places[last] + 1


@cache
def _kept(removed: bytes) -> bytes:
    """Return a table that translates these characters into 0 and all others into 1."""
    return bytes(code not in removed for code in range(256))


def _way(view: View, text: str) -> Way | Removal:
    return Way(view, text) if view.without is None or not text.isascii() else Removal(view.without, text)


def _small(text: str) -> str:
    """Return a text of this length in small letters, those at the end of Greek words as those within."""
    small = text.lower()
    if len(small) != len(text):
        small = "".join(lower if len(lower := c.lower()) == 1 else c for c in text)
    return small.replace("ς", "σ")


class Origins:
    """Where in a text what is seen of it comes from, worked out for each level once it is asked for."""

    def __init__(self, text: str) -> None:
        self.levels: list[tuple[str, list[Way | Removal]]] = [(text, [])]

    def of(self, level: int, views: Sequence[View]) -> list[Way | Removal]:
        """Return the ways from the text to these views, one after the other, of what was unescaped so often."""
        while len(self.levels) <= level:
            text, ways = self.levels[-1]
            self.levels.append((UNESCAPED.replaced(text), [*ways, Way(UNESCAPED, text)]))
        text, ways = self.levels[level]
        for n, view in enumerate(views, start=1):
            ways = [*ways, _way(view, text)]
            if n < len(views):
                text = view.replaced(text)
        return ways


def traced(ways: Sequence[Way | Removal], begin: int, end: int) -> tuple[int, int]:
    """Return the beginning and the end in the text of what lies between these places at the end of the ways."""
    for way in reversed(ways):
        begin, end = way.span(begin, end - 1)
    return begin, end
