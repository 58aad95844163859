"""The forms a secret may have in a text: as it is, line by line, encoded, and as numbers and dates are written. Pure.

Forms that only escape characters (quotes, JSON, percent signs, HTML) are none of these:
a text is also searched unescaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

#: A shorter value is not treated as a secret: it occurs in unrelated texts, too.
SHORTEST: Final = 4

#: Characters that numbers may have between their digits.
SEPARATORS: Final = r" ,._'’/:()+\u00a0\u2009\u202f-"

_NUMBER = re.compile(rf"[0-9{SEPARATORS}]+")
_SEPARATED = re.compile(rf"[{SEPARATORS}]+")
_JOINTS = re.compile(r"[\s.,:/_-]+")

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

#: How many leading characters of a base64 text depend on the 0, 1 or 2 bytes before the secret.
_STARTS = (0, 2, 3)


@dataclass(frozen=True, slots=True)
class Spellings:
    """The texts that give a value away; none of them is short, and each is listed once.

    `written`: as somebody writes it. `encoded`: hexadecimal digits and base64 in small letters. `digits`: those of a
    number or a date, for a text without what is between its digits.
    """

    written: Collection[str]
    encoded: Collection[str]
    digits: Collection[str]


def spellings(value: Any) -> Spellings:
    text = _text(value)
    whole, when = text.strip(), _date(value)
    written: dict[str, None] = {}
    encoded: dict[str, None] = {}
    if len(whole) >= SHORTEST:
        lines = [line.strip() for line in whole.splitlines()]
        for part in dict.fromkeys([whole, *lines]) if len(lines) > 1 else (whole,):
            if len(part) >= SHORTEST:
                written.update(dict.fromkeys(_written(part)))
                raw = value if isinstance(value, bytes) else part.encode("utf-8", "surrogatepass")
                encoded.update(dict.fromkeys(_encoded(raw)))
    if when is not None:
        written.update(dict.fromkeys(_dates(when)))
    return Spellings(written, encoded, dict.fromkeys(_digits(text, when)))


def _digits(text: str, when: date | None) -> Iterator[str]:
    for one in (text,) if when is None else (text, str(when)):
        alone = _SEPARATED.sub("", one) if _NUMBER.fullmatch(one) else ""
        if len(alone) >= SHORTEST:
            yield alone
    if when is not None:
        day, month, year = when.day, when.month, when.year
        yield from (f"{year:04}{month:02}{day:02}", f"{day:02}{month:02}{year:04}", f"{month:02}{day:02}{year:04}")
        yield from (f"{year}{month}{day}", f"{day}{month}{year}", f"{month}{day}{year}")
        yield from (f"{day:02}{month:02}{year % 100:02}", f"{month:02}{day:02}{year % 100:02}")


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
    if (joined := _JOINTS.sub("", text)) != text:
        yield from (shorter for shorter in ("".join(text.split()), joined) if len(shorter) >= SHORTEST)


def _encoded(raw: bytes) -> Iterator[str]:
    yield raw.hex()
    for before, start in enumerate(_STARTS):
        # Leaves out the character that depends on the bits after it.
        end = None if (length := (before + len(raw)) * 4) % 3 == 0 else length // 3
        inner = base64.b64encode(bytes(before) + raw)[start:end].decode().lower()
        yield inner
        if "+" in inner or "/" in inner:
            yield inner.replace("+", "-").replace("/", "_")


def _date(value: Any) -> date | None:
    if isinstance(value, date) or not isinstance(value, str) or not value[:1].isdigit():
        return value if isinstance(value, date) else None
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        return None


def _dates(when: date) -> Iterator[str]:
    for month in (_MONTHS[when.month - 1], _MONTHS[when.month - 1][:3]):
        for day in (f"{when.day}", f"{when.day:02}"):
            yield from (f"{day}{joint}{month}{joint}{when.year}" for joint in (" ", "-", "/"))
            yield from (f"{day}. {month} {when.year}", f"{month} {day} {when.year}", f"{month} {day}, {when.year}")
