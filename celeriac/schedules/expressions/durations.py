"""Durations as Go's `time.ParseDuration` reads them (`1h30m`, `1.5h`, `250ms`), and days (`7d`). Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from celeriac.errors import BadExpression

SHORTEST = timedelta(milliseconds=10)
LONGEST = timedelta(days=36_525)

_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "\u00b5s": Fraction(1),  # the micro sign
    "\u03bcs": Fraction(1),  # the Greek letter
    "ms": Fraction(1_000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
    "d": Fraction(86_400_000_000),
}
_TERM = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([^0-9.]*)")


def period(text: str) -> timedelta:
    """Parse a period, to the microsecond. Raises BadExpression unless it is 10 ms to 100 years (36,525 days)."""
    exact = _microseconds(text)
    if exact < SHORTEST / timedelta(microseconds=1):
        raise _bad(text, "is too short: the shortest period is 10ms")
    if exact > LONGEST / timedelta(microseconds=1):
        raise _bad(text, "is too long: the longest period is 36525d, a hundred years")
    return timedelta(microseconds=round(exact))


def _microseconds(text: str) -> Fraction:
    total, at = Fraction(0), int(text.startswith("+"))
    if not text[at:]:
        raise _bad(text, "has no duration")
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            raise _bad(text, f"has no number where {text[at:]!r} stands")
        number, unit = term.groups()
        total += Fraction(number) * _scale(text, number, unit)
        at = term.end()
    return total


def _scale(text: str, number: str, unit: str) -> Fraction:
    if unit not in _MICROSECONDS:
        wrong = f"has the unknown unit {unit!r} after {number}" if unit else f"has no unit after {number}"
        raise _bad(text, f"{wrong} (there are ns, us, µs, ms, s, m, h and d)")
    return _MICROSECONDS[unit]


def _bad(text: str, why: str) -> BadExpression:
    return BadExpression(f"'@every {text}' {why}; write for example '@every 30s', '@every 1h30m' or '@every 7d'")
