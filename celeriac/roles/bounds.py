"""Bounds: the allowed values, and the texts that describe them. They apply to roles, calls, accounts and the API.

`celeriac.enqueue` has the same in SQL; `tests/postgres/test_enqueue_in_sql.py` compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

#: The most characters of a name that people give: of a role, a queue, a schedule, a worker, a view.
LONGEST_NAME = 200

#: Names that clients remove from an address.
FOLDERS = (".", "..")

#: The most bytes of a key or a task's id: Postgres indexes no more than 2,700 bytes, and the role's name is among them.
LONGEST_KEY = 1000

#: The longest delay (seconds, 100 years): Postgres cannot add a longer one to a date.
LONGEST_DELAY = 100 * 365 * 86_400.0

#: The maximum of all counts: retries, rounds, losses, tasks at once.
MOST = 1_000_000

ANY_PRIORITY = (-1_000_000, 1_000_000)

#: The bounds of an account's weight; the usual one is 1.
LIGHTEST, HEAVIEST = 1e-6, 1e6

Fits = Callable[[Any], bool]


class Rule(NamedTuple):
    """A check of a value. `right`: what would be right, as the object of "give"."""

    fits: Fits
    right: str


def seconds(value: Any) -> Any:
    """Return a timedelta's seconds; anything else as it is."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def is_whole(low: int, high: int) -> Fits:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_duration(value: Any) -> bool:
    """Return whether the value is seconds, not negative and not beyond what Postgres can add to a date."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_DELAY


def is_distance(value: Any) -> bool:
    """Return whether the value is seconds, before or after now."""
    return is_duration(value) or (isinstance(value, int | float) and value < 0 and is_duration(-value))


def is_text(value: Any) -> bool:
    """Return whether Postgres can store and index the text."""
    try:
        return isinstance(value, str) and "\x00" not in value and len(value.encode()) <= LONGEST_KEY
    except UnicodeEncodeError:
        return False


def name(most: int = LONGEST_NAME) -> Rule:
    """Return the rule for names that people give: an address, a command and a log line have to be able to contain and
    show them.
    """

    def fits(value: Any) -> bool:
        if not isinstance(value, str) or value in FOLDERS:
            return False
        return 0 < len(value) <= most and value.isprintable() and value.strip() == value

    return Rule(fits, f"1 to {most} printable characters without a space at an end, not . or ..")


def or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def whole(low: int, high: int, unit: str = "") -> Rule:
    return Rule(is_whole(low, high), f"{low:,} to {high:,}{unit}")


def outside(priorities: tuple[int, int], priority: int) -> str | None:
    """Return what would be right if this priority is out of range; None if it is in range."""
    low, high = priorities
    return None if low <= priority <= high else f"a whole number from {low:,} to {high:,}"


def wrong(rules: Mapping[str, Rule], values: Mapping[str, Any]) -> str | None:
    """Return which of these values is wrong, and what would be right; a value without a rule is wrong."""
    for name, value in values.items():
        rule = rules.get(name)
        if rule is None:
            return f"{name}={value!r:.300}: give one of {', '.join(rules)} instead"
        if not rule.fits(value):
            return f"{name}={value!r:.300}: give {rule.right}"
    return None


PRIORITY = Rule(is_whole(*ANY_PRIORITY), f"a whole number from {ANY_PRIORITY[0]:,} to {ANY_PRIORITY[1]:,}")
NAME = name()
TEXT = Rule(is_text, f"a text of at most {LONGEST_KEY} bytes without NUL")
SOME_TEXT = Rule(lambda value: is_text(value) and bool(value), f"{TEXT.right}, and not empty")
_DISTANCE = Rule(is_distance, "seconds, at most 100 years away")

#: The rules for the fields that a call may set.
CALL: Mapping[str, Rule] = {
    "task_id": SOME_TEXT,
    "account": TEXT,
    "lock_key": TEXT,
    "unique_key": TEXT,
    "priority": PRIORITY,
    "max_retries": whole(0, MOST),
    "retries": whole(0, MOST),
    "timeout": Rule(lambda value: is_duration(value) and value > 0, "seconds above 0, at most 100 years"),
    "delay": _DISTANCE,
    "expires_in": _DISTANCE,
}

#: The rules for what an operator may set for an account.
ACCOUNT: Mapping[str, Rule] = {
    "weight": Rule(
        lambda value: isinstance(value, int | float) and math.isfinite(value) and LIGHTEST <= value <= HEAVIEST,
        f"a number from {LIGHTEST:f} to {HEAVIEST:,.0f}",
    ),
    "cap": Rule(or_none(is_whole(0, MOST)), f"a whole number from 0 to {MOST:,}, or none"),
    "paused": Rule(lambda value: isinstance(value, bool), "true or false"),
}
