"""The forms a secret may have in a text: as it is, line by line, encoded, and as numbers and dates are written. Pure.

Forms that only escape characters (quotes, JSON, percent signs, HTML) are none of these:
a text is also searched unescaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, Final

#: A shorter value is no secret worth the name, and occurs in unrelated texts.
SHORTEST: Final = 4

#: Characters that numbers may have between their digits.
SEPARATORS: Final = r" ,._'’/:()+\u00a0\u2009\u202f-"

_NUMBER = re.compile(rf"[0-9{SEPARATORS}]+")
_JOINTS = re.compile(r"[\s.,:/_-]+")

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

#: How many leading characters of a base64 text depend on the 0, 1 or 2 bytes before the secret.
_STARTS = (0, 2, 3)


def spellings(value: Any) -> Iterator[str]:
    """Yield texts that give the value away, none of them short."""
    whole = _text(value).strip()
    if len(whole) >= SHORTEST:
        lines = (line.strip() for line in whole.splitlines())
        for part in dict.fromkeys([whole, *(line for line in lines if len(line) >= SHORTEST)]):
            yield from _encoded(part, value if isinstance(value, bytes) else part.encode("utf-8", "surrogatepass"))
    when = _date(value)
    if when is not None:
        yield from _dates(when)


def digits(value: Any) -> Iterator[str]:
    """Yield the digits that give a number or a date away, for a text without what is between its digits."""
    when = _date(value)
    for text in dict.fromkeys([_text(value), str(when)]):
        alone = "".join(c for c in text if c in "0123456789") if _NUMBER.fullmatch(text) else ""
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


def _encoded(text: str, raw: bytes) -> Iterator[str]:
    yield text
    if not text.isascii():
        yield as_bytes_shown(text)
    yield from (joined for joined in ("".join(text.split()), _JOINTS.sub("", text)) if len(joined) >= SHORTEST)
    yield raw.hex()
    for before, start in enumerate(_STARTS):
        shown = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        is_even = (before + len(raw)) % 3 == 0
        inner = shown[start:] if is_even else shown[start:-1]  # without the character that depends on the bits after it
        yield inner
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
