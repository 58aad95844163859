"""The forms a secret may have in a text: as it is, line by line, encoded, and as numbers and dates are written. Pure.

Forms that only escape characters (quotes, JSON, percent signs, HTML) are none of these:
a text is also searched unescaped.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

#: A shorter value is not treated as a secret: it occurs in unrelated texts, too.
SHORTEST: Final = 4

#: Minimum number of letters and digits that are a secret by themselves, whatever stands between them in a text.
COMPACT: Final = 6

#: Characters that numbers may have between their digits.
SEPARATORS: Final = r" \t\n,._'’/:;|()+\u00a0\u2009\u2010-\u2015\u202f-"

_NUMBER = re.compile(rf"[0-9{SEPARATORS}]+")
_SEPARATED = re.compile(rf"[{SEPARATORS}]+")
_JOINTS = re.compile(r"[\s.,:/_-]+")
_WORD = re.compile(r"[^\W_]")
_DECIMAL = re.compile(r"[+-]?([0-9]+)\.([0-9]+)")

#: A date as somebody writes it: day, month and year, the other way round, or month and day before the year.
_JOINT = r"[ .,/-]{1,2}"
_DATE = re.compile(
    rf"([0-9]{{1,2}}){_JOINT}([0-9]{{1,2}}){_JOINT}([0-9]{{4}})"
    rf"|([0-9]{{4}}){_JOINT}([0-9]{{1,2}}){_JOINT}([0-9]{{1,2}})"
    rf"|([0-9]{{1,2}})(?:st|nd|rd|th)?{_JOINT}([A-Za-z]{{3,9}}){_JOINT}([0-9]{{4}})"
    rf"|([A-Za-z]{{3,9}}){_JOINT}([0-9]{{1,2}})(?:st|nd|rd|th)?{_JOINT}([0-9]{{4}})"
)
_LONGEST_DATE = 24

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_NTH = {1: "st", 2: "nd", 3: "rd"}

#: The normal forms of Unicode, in which file names, databases and libraries write what they were given.
_NORMAL: Final = ("NFC", "NFD", "NFKC", "NFKD")

#: Number of leading characters of a base64 text that depend on the 0, 1 or 2 bytes before the secret.
_STARTS = (0, 2, 3)


@dataclass(frozen=True, slots=True)
class Spellings:
    """The texts that give a value away; none of them is short, and each is listed once.

    `written`: as somebody writes it. `encoded`: letters and digits alone, in small letters: of hexadecimal digits,
    base64, and dates with the names of months. `digits`: those of a number or a date.
    """

    written: Collection[str]
    encoded: Collection[str]
    digits: Collection[str]


def spellings(value: Any) -> Spellings:
    text = _text(value)
    whole, dates = text.strip(), _dates_of(value)
    written: dict[str, None] = {}
    encoded: dict[str, None] = {}
    if len(whole) >= SHORTEST:
        lines = [line.strip() for line in whole.splitlines()]
        for part in dict.fromkeys([whole, *lines]) if len(lines) > 1 else (whole,):
            if len(part) >= SHORTEST:
                written.update(dict.fromkeys(_written(part)))
                raw = value if isinstance(value, bytes) else part.encode("utf-8", "surrogatepass")
                encoded.update(dict.fromkeys(_encoded(raw)))
    for when in dates:
        encoded.update(dict.fromkeys(_with_months(when)))
    return Spellings(written, encoded, dict.fromkeys(_digits(text, dates)))


def _digits(text: str, dates: Sequence[date]) -> Iterator[str]:
    for one in (text, *map(str, dates)):
        alone = _SEPARATED.sub("", one) if one[-1:].isdigit() and _NUMBER.fullmatch(one) else ""
        if len(alone) >= SHORTEST:
            yield alone
    if (number := _DECIMAL.fullmatch(text)) is not None:
        whole, decimals = number[1], number[2].rstrip("0")
        yield from (alone for alone in {whole, whole + decimals[:1], whole + decimals} if len(alone) >= SHORTEST)
    for when in dates:
        day, month, year = when.day, when.month, when.year
        yield from (f"{year:04}{month:02}{day:02}", f"{day:02}{month:02}{year:04}", f"{month:02}{day:02}{year:04}")
        yield from (f"{year}{month}{day}", f"{day}{month}{year}", f"{month}{day}{year}")
        short = year % 100
        yield from (f"{day:02}{month:02}{short:02}", f"{month:02}{day:02}{short:02}", f"{short:02}{month:02}{day:02}")
        yield from (f"{day}{month}{short:02}", f"{month}{day}{short:02}")


def as_bytes_shown(text: str) -> str:
    """Return its UTF-8, a character a byte: as a repr of bytes and a URL are, once they are unescaped."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value.isoformat() if isinstance(value, date) else str(value)


def _written(text: str) -> Iterator[str]:
    yield text
    if not text.isascii():
        yield as_bytes_shown(text)
        for form in dict.fromkeys(unicodedata.normalize(name, text) for name in _NORMAL):
            if form != text:
                yield from (form, as_bytes_shown(form))
    if len(text) < 2 * COMPACT and len(_WORD.findall(text)) < COMPACT:
        others = ("".join(text.split()), _JOINTS.sub("", text))
        yield from (shorter for shorter in others if shorter != text and len(shorter) >= SHORTEST)


def _encoded(raw: bytes) -> Iterator[str]:
    yield raw.hex()
    for before, start in enumerate(_STARTS):
        # Leaves out the character that depends on the bits after it.
        end = None if (length := (before + len(raw)) * 4) % 3 == 0 else length // 3
        inner = base64.b64encode(bytes(before) + raw)[start:end].translate(None, b"+/=").lower().decode()
        if len(inner) >= SHORTEST:
            yield inner


def _dates_of(value: Any) -> Sequence[date]:
    """Return the dates that a value may be: 05/06/1990 is one of two."""
    if isinstance(value, date):
        return (value,)
    if not isinstance(value, str) or not (value[:1].isdigit() or value[-1:].isdigit()):
        return ()
    value = value.strip()
    if (written := _DATE.fullmatch(value) if len(value) <= _LONGEST_DATE else None) is not None:
        return [*_of_parts(*written.groups())]
    if not value[:4].isdigit():
        return ()
    try:
        return (datetime.fromisoformat(value),)
    except ValueError:
        return ()


def _of_parts(*parts: str | None) -> Iterator[date]:
    one, other, last, year, month, day, *named = parts
    if one and other and last:
        ways = {(last, other, one), (last, one, other)}
    elif year and month and day:
        ways = {(year, month, day)}
    else:
        first, name, year_of_first, name_first, second, year_of_second = named
        ways = {(year_of_first or year_of_second or "", _number_of(name or name_first or ""), first or second or "")}
    for way in sorted(ways):
        try:
            yield date(*map(int, way))
        except ValueError:
            continue


def _number_of(name: str) -> str:
    return next((str(n) for n, month in enumerate(_MONTHS, 1) if name.lower() in (month, month[:3])), "")


def _with_months(when: date) -> Iterator[str]:
    year, short = f"{when.year:04}", f"{when.year % 100:02}"
    days = {f"{when.day}", f"{when.day:02}"}
    nth = f"{when.day}{'th' if 10 < when.day < 20 else _NTH.get(when.day % 10, 'th')}"
    yield f"year{when.year}month{when.month}day{when.day}"  # as a repr by keywords, or JSON, has it
    for month in {_MONTHS[when.month - 1], _MONTHS[when.month - 1][:3]}:
        for day in (*days, nth):
            yield from (f"{day}{month}{year}", f"{month}{day}{year}", f"{year}{month}{day}")
        yield from (f"{day}{month}{short}" for day in days)
        yield f"{nth}of{month}{year}"
        if isinstance(when, datetime):
            yield from (f"{month}{day}{when:%H%M%S}{year}" for day in days)
