"""What a role's options must be, and how to say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Literal

from celeriac.roles.keys import ONE, is_key
from celeriac.roles.rates import RIGHT as RATE
from celeriac.roles.rates import is_rate

FOREVER: Literal["forever"] = "forever"

#: The one task that is no role.
TICKET = "celeriac.ticket"

ANY_PRIORITY = (-1_000_000, 1_000_000)


#: What a role's name, a key or a task's id may measure: Postgres indexes them.
LONGEST_NAME = 200

#: How the engine's own keys of Redis begin.
OURS = "celeriac:"

#: No delay may be longer (seconds, 100 years): Postgres cannot add it to a date.
LONGEST_DELAY = 100 * 365 * 86_400.0

DURATIONS = ("every", "chunk_target", "round_delay", "timeout", "hard_timeout", "stale_after")

Fits = Callable[[Any], bool]


def seconds(given: Any) -> Any:
    """A timedelta's seconds; anything else as it is."""
    return given.total_seconds() if isinstance(given, timedelta) else given


def is_whole(low: int, high: int) -> Fits:
    return lambda given: isinstance(given, int) and not isinstance(given, bool) and low <= given <= high


def outside(priorities: tuple[int, int], priority: int) -> str | None:
    """What would be right, if this priority is not."""
    low, high = priorities
    return None if low <= priority <= high else f"a whole number from {low:,} to {high:,}"


def is_duration(given: Any) -> bool:
    """Seconds, not negative and not beyond what Postgres can add to a date."""
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= LONGEST_DELAY


def _is_period(given: Any) -> bool:
    return is_duration(given) and given > 0


def _is_lease(given: Any) -> bool:
    """Three heartbeats have to fit in."""
    return is_duration(given) and given >= 1


def _is_range(given: Any) -> bool:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    return all(map(is_whole(*ANY_PRIORITY), given)) and bool(given[0] <= given[1])


def _is_name(given: Any) -> bool:
    """The plain messages of a queue lie under its name, and may lie under none of the engine's."""
    if not isinstance(given, str) or given.startswith(OURS):
        return False
    return given.isprintable() and "," not in given and 0 < len(given) <= LONGEST_NAME


def _or(other: object, fits: Fits) -> Fits:
    return lambda given: (type(given) is type(other) and given == other) or fits(given)


def _is_flag(given: Any) -> bool:
    return isinstance(given, bool)


_NAME = (
    f"1 to {LONGEST_NAME} printable characters without commas, at which `celery -Q` splits, that do not begin with "
    f"{OURS!r}, where the engine's own keys of Redis are"
)
_KEY = (is_key, 'the name of a parameter of the handler, a format of several ("{a}:{b}"), a function, or None')
_FLAG = (_is_flag, "True or False")
_PERIOD = (_is_period, "seconds above 0 (at most 100 years) or a timedelta")
_MAYBE = (_or(None, _is_period), f"{_PERIOD[1]}, or None")

#: What each option must be, and how to say so.
RULES: Mapping[str, tuple[Fits, str]] = {
    "name": (_is_name, _NAME),
    "queue": (_or("", _is_name), _NAME),
    "fair_by": _KEY,
    "lock_by": _KEY,
    "unique_by": (_or(ONE, is_key), f"{_KEY[1]}, or ONE"),
    "priority": (is_whole(*ANY_PRIORITY), "a whole number from -1,000,000 to 1,000,000"),
    "priority_range": (_is_range, "a pair (lowest, highest) of whole numbers from -1,000,000 to 1,000,000"),
    "batch_size": (is_whole(1, 1_000_000), "1 to 1,000,000 rows a pass"),
    "window": (is_whole(1, 1_000_000), "1 to 1,000,000 tasks at once"),
    "every": _PERIOD,
    "prompt": _FLAG,
    "chunk": (_or("auto", is_whole(1, 10_000)), "'auto' or 1 to 10,000 rows a ticket"),
    "chunk_target": _PERIOD,
    "max_retries": (_or(None, is_whole(0, 1_000_000)), "0 to 1,000,000, or None for no limit"),
    "max_rounds": (is_whole(1, 1_000_000), "1 to 1,000,000 rounds"),
    "round_delay": (is_duration, "seconds, 0 or more (at most 100 years), or a timedelta"),
    "timeout": _MAYBE,
    "hard_timeout": _MAYBE,
    "stale_after": (_is_lease, "at least 1 second (at most 100 years) or a timedelta"),
    "max_losses": (is_whole(1, 1_000_000), "1 to 1,000,000"),
    "memory_per_task": (_or(None, is_whole(1, 1_000_000)), "1 to 1,000,000 megabytes, or None"),
    "keep": (
        _or(None, _or(FOREVER, lambda given: isinstance(given, timedelta) and is_duration(seconds(given)))),
        "a timedelta such as days(30) (at most 100 years), FOREVER, or None",
    ),
    "enabled_by": (_or(None, lambda given: isinstance(given, str) and given.isidentifier()), "a variable's name"),
    "rate_limit": (is_rate, RATE),
    "adopt": _FLAG,
    "by_name": _FLAG,
}
