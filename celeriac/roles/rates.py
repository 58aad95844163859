"""Rates: how many tasks of a role may begin in a time, as a text such as "10/m"."""

from __future__ import annotations

import re
from typing import Any

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")

RIGHT = 'a number a second or a text such as "10/m" (s, m, h), at most 1,000,000, or None'


def is_rate(given: Any) -> bool:
    """Celery's spellings: a number a second, or "10/s", "10/m", "10/h"; 0 and None for no limit."""
    return given is None or (not isinstance(given, bool) and _read(given) is not None)


def rate(given: Any) -> str | None:
    """As SQL reads it; None for no limit."""
    count, period = (_read(given) or (0.0, "")) if given is not None else (0.0, "")
    return f"{count:.15g}/{period}" if count else None


def per_second(limit: str) -> float:
    count, _, period = limit.partition("/")
    return float(count) / {"s": 1, "m": 60, "h": 3600}[period]


def burst(limit: str) -> float:
    """How many may begin at once after a rest: one period's."""
    return max(1.0, float(limit.partition("/")[0]))


def _read(given: Any) -> tuple[float, str] | None:
    found = _RATE.fullmatch(f"{given:f}" if isinstance(given, float) else str(given).strip())
    return (float(found[1]), found[2] or "s") if found and float(found[1]) <= 1_000_000 else None
