"""Rates: how many tasks of a role may begin in a time, as a text such as "10/m"."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

#: The pattern of a rate: a count, and the period it is for.
WRITTEN = r"^ *[0-9]+(\.[0-9]+)?(/[smh])? *$"

_RATE = re.compile(r" *([0-9]+(?:\.[0-9]+)?)(?:/([smh]))? *")

_PERIODS = {"s": 1, "m": 60, "h": 3600}

_MOST = 1_000_000

#: Seconds of a leap year.
_YEAR = 366 * 86_400

RIGHT = 'a number a second or a text such as "10/m" (s, m, h), from one a year to 1,000,000, or None'


def is_rate(value: Any) -> bool:
    """Return whether the value is one of Celery's spellings: a number a second, or "10/s", "10/m", "10/h";
    0 and None for no limit.
    """
    return value is None or (not isinstance(value, bool) and _read(value) is not None)


def rate(value: Any) -> str | None:
    """Return the rate as SQL reads it, with every digit and no exponent; None for no limit."""
    count, period = (_read(value) or (Decimal(0), "")) if value is not None else (Decimal(0), "")
    return f"{_written(count)}/{period}" if count else None


def per_second(limit: str) -> float:
    count, _, period = limit.partition("/")
    return float(count) / _PERIODS[period]


def burst(limit: str) -> float:
    """Return how many may begin at once after a pause: those of one period."""
    return max(1.0, float(limit.partition("/")[0]))


def _read(value: Any) -> tuple[Decimal, str] | None:
    text = f"{Decimal(float.__repr__(value)):f}" if isinstance(value, float) else str(value).strip()
    if (match := _RATE.fullmatch(text)) is None:
        return None
    count, period = Decimal(match[1]), match[2] or "s"
    return (count, period) if not count or _PERIODS[period] <= count * _YEAR <= _MOST * _YEAR else None


def _written(count: Decimal) -> str:
    written = f"{count:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written
