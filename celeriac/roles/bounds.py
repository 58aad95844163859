"""Bounds: what a value may measure, and how to say so. Roles, calls, accounts and the API go by these.

`celeriac.enqueue` says the same in SQL; `tests/postgres/test_enqueue_in_sql.py` compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

#: What a role's name or a task's id may measure: Postgres indexes them.
LONGEST_NAME = 200

#: Bytes of a key: Postgres indexes no more than 2,700 a row, and a role's name is in there, too.
LONGEST_KEY = 1000

#: No delay may be longer (seconds, 100 years): Postgres cannot add it to a date.
LONGEST_DELAY = 100 * 365 * 86_400.0

#: Of whatever is counted: retries, rounds, losses, tasks at once.
MOST = 1_000_000

ANY_PRIORITY = (-1_000_000, 1_000_000)

#: An account's share beside others' 1.
LIGHTEST, HEAVIEST = 1e-6, 1e6

Fits = Callable[[Any], bool]


class Rule(NamedTuple):
    """`right`: what would be right, to follow on "give"."""

    fits: Fits
    right: str


def seconds(value: Any) -> Any:
    """A timedelta's seconds; anything else as it is."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def is_whole(low: int, high: int) -> Fits:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_duration(value: Any) -> bool:
    """Seconds, not negative and not beyond what Postgres can add to a date."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_DELAY


def is_distance(value: Any) -> bool:
    """Seconds, before or after now."""
    return is_duration(value) or (isinstance(value, int | float) and value < 0 and is_duration(-value))


def is_text(value: Any) -> bool:
    """Of what Postgres stores and indexes."""
    try:
        return isinstance(value, str) and "\x00" not in value and len(value.encode()) <= LONGEST_KEY
    except UnicodeEncodeError:
        return False


def or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def whole(low: int, high: int, unit: str = "") -> Rule:
    return Rule(is_whole(low, high), f"{low:,} to {high:,}{unit}")


def outside(priorities: tuple[int, int], priority: int) -> str | None:
    """What would be right, if this priority is not."""
    low, high = priorities
    return None if low <= priority <= high else f"a whole number from {low:,} to {high:,}"


def wrong(rules: Mapping[str, Rule], values: Mapping[str, Any]) -> str | None:
    """Which of these values does not fit, and what would be right; what no rule knows is wrong."""
    for name, value in values.items():
        rule = rules.get(name)
        if rule is None:
            return f"{name}={value!r:.300}: give one of {', '.join(rules)} instead"
        if not rule.fits(value):
            return f"{name}={value!r:.300}: give {rule.right}"
    return None


PRIORITY = Rule(is_whole(*ANY_PRIORITY), f"a whole number from {ANY_PRIORITY[0]:,} to {ANY_PRIORITY[1]:,}")
TEXT = Rule(is_text, f"a text of at most {LONGEST_KEY} bytes without NUL")
_DISTANCE = Rule(is_distance, "seconds, at most 100 years away")

#: What a call may say of its row.
CALL: Mapping[str, Rule] = {
    "task_id": Rule(lambda value: is_text(value) and bool(value), TEXT.right),
    "account": TEXT,
    "lock_key": TEXT,
    "unique_key": TEXT,
    "priority": PRIORITY,
    "max_retries": whole(0, MOST),
    "timeout": Rule(lambda value: is_duration(value) and value > 0, "seconds above 0, at most 100 years"),
    "delay": _DISTANCE,
    "expires_in": _DISTANCE,
}

#: What an operator may say of an account.
ACCOUNT: Mapping[str, Rule] = {
    "weight": Rule(
        lambda value: isinstance(value, int | float) and math.isfinite(value) and LIGHTEST <= value <= HEAVIEST,
        f"a number from {LIGHTEST:f} to {HEAVIEST:,.0f}",
    ),
    "cap": Rule(or_none(is_whole(0, MOST)), f"a whole number from 0 to {MOST:,}, or none"),
    "paused": Rule(lambda value: isinstance(value, bool), "true or false"),
}
