"""The rules for a role's options, and the texts that describe a right value."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from celeriac.roles.bounds import (
    ANY_PRIORITY,
    LONGEST_NAME,
    MOST,
    NAME,
    PRIORITY,
    Fits,
    Rule,
    is_duration,
    is_whole,
    or_none,
    seconds,
    whole,
)
from celeriac.roles.keys import ONE, is_key
from celeriac.roles.rates import RIGHT as RATE
from celeriac.roles.rates import is_rate

FOREVER: Literal["forever"] = "forever"

#: The name of the tickets' own Celery task, the only one that is no role.
TICKET = "celeriac.ticket"

#: The prefix of the engine's own keys in Redis.
OURS = "celeriac:"

DURATIONS = ("every", "chunk_target", "round_delay", "timeout", "hard_timeout", "stale_after", "wait_objective")


def _is_period(value: Any) -> bool:
    return is_duration(value) and value > 0


def _is_lease(value: Any) -> bool:
    """Return whether a lease is long enough: three heartbeats have to fit in."""
    return is_duration(value) and value >= 1


def _is_range(value: Any) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return all(map(is_whole(*ANY_PRIORITY), value)) and bool(value[0] <= value[1])


def _is_name(value: Any) -> bool:
    """Check a queue's name: it is also the key of plain messages in Redis, so it must be none of the engine's keys."""
    return bool(NAME.fits(value)) and "," not in value and not value.startswith(OURS)


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) and 0 < len(one) <= LONGEST_NAME for one in value)


def _or(other: object, fits: Fits) -> Fits:
    return lambda value: (type(value) is type(other) and value == other) or fits(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_NAME = (
    f"{NAME.right}, without commas, at which `celery -Q` splits, that do not begin with "
    f"{OURS!r}, where the engine's own keys of Redis are"
)
_KEY = Rule(is_key, 'the name of a parameter of the handler, a format of several ("{a}:{b}"), a function, or None')
_FLAG = Rule(_is_flag, "True or False")
_PERIOD = Rule(_is_period, "seconds above 0 (at most 100 years) or a timedelta")
_MAYBE = Rule(or_none(_is_period), f"{_PERIOD.right}, or None")

#: The rule for each option.
RULES: Mapping[str, Rule] = {
    "name": Rule(_is_name, _NAME),
    "queue": Rule(_or("", _is_name), _NAME),
    "queues": Rule(
        lambda value: isinstance(value, tuple) and all(map(_is_name, value)) and len(set(value)) == len(value),
        f"a tuple of different queues such as ('index', 'index-slow'), each of {_NAME}",
    ),
    "fair_by": _KEY,
    "lock_by": _KEY,
    "unique_by": Rule(_or(ONE, is_key), f"{_KEY.right}, or ONE"),
    "unique_while": Rule(lambda value: value in ("unfinished", "due"), "'unfinished' or 'due'"),
    "priority": PRIORITY,
    "priority_range": Rule(
        _is_range, "a pair (lowest, highest) of whole numbers from {:,} to {:,}".format(*ANY_PRIORITY)
    ),
    "batch_size": whole(1, MOST, " rows a pass"),
    "window": Rule(or_none(is_whole(1, MOST)), f"1 to {MOST:,} tasks at once, or None for as many as its slots begin"),
    "every": _PERIOD,
    "prompt": _FLAG,
    "chunk": Rule(_or("auto", is_whole(1, 10_000)), "'auto' or 1 to 10,000 rows a ticket"),
    "chunk_target": _PERIOD,
    "max_retries": Rule(or_none(is_whole(0, MOST)), f"0 to {MOST:,}, or None for no limit"),
    "max_rounds": whole(1, MOST, " rounds"),
    "round_delay": Rule(is_duration, "seconds, 0 or more (at most 100 years), or a timedelta"),
    "timeout": _MAYBE,
    "hard_timeout": _MAYBE,
    "stale_after": Rule(_is_lease, "at least 1 second (at most 100 years) or a timedelta"),
    "wait_objective": _MAYBE,
    "max_losses": whole(1, MOST),
    "memory_per_task": Rule(or_none(is_whole(1, MOST)), f"1 to {MOST:,} megabytes, or None"),
    "keep": Rule(
        or_none(_or(FOREVER, lambda value: isinstance(value, timedelta) and is_duration(seconds(value)))),
        "a timedelta such as days(30) (at most 100 years), FOREVER, or None",
    ),
    "enabled_by": Rule(or_none(lambda value: isinstance(value, str) and value.isidentifier()), "a variable's name"),
    "rate_limit": Rule(is_rate, RATE),
    "adopt": _FLAG,
    "by_name": _FLAG,
    "aliases": Rule(
        lambda value: isinstance(value, tuple) and all(map(_is_name, value)),
        f"a tuple of former names such as ('webhook',), each of {_NAME}",
    ),
    "sensitive": Rule(or_none(_are_names), "a tuple of names such as ('password',), or () for none"),
}
