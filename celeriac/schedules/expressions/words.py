"""An expression in words, as `at 03:00, Monday to Friday`; None if a few words cannot say it exactly. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from celeriac.errors import BadExpression
from celeriac.schedules.expressions import Cron, Every, Expression, parse

#: More times or days than this are not put into words.
MOST = 6

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def phrase(text: str, timezone: str) -> str | None:
    """Return a schedule's expression in words, naming its zone if it is not the schedule's."""
    try:
        expression = parse(text, timezone)
    except BadExpression:
        return None
    said = in_words(expression)
    return said if said is None or expression.timezone == timezone else f"{said}, in {expression.timezone}"


def in_words(expression: Expression) -> str | None:
    """Return the expression in words, by the clocks of its zone, which is not named."""
    if isinstance(expression, Every):
        return _every(expression.every)
    return _cron(expression.pattern) if isinstance(expression, Cron) else None


def _every(period: timedelta) -> str | None:
    seconds = period.total_seconds()
    if not seconds.is_integer():
        return None
    parts, left = [], int(seconds)
    for unit, size in _UNITS:
        n, left = divmod(left, size)
        parts += [f"{n} {unit}{'s' * (n != 1)}"] if n else []
    return f"every {_and(parts)}" if len(parts) > 1 else f"every {parts[0].removeprefix('1 ')}"


def _cron(pattern: str) -> str | None:
    second, minute, hour, day, month, weekday = pattern.split()
    clock, days = _clock(second, minute, hour), _days(day, month, weekday)
    if clock is None or days is None:
        return None
    if days:
        return f"{clock}, {days}"
    return f"{clock} every day" if ":" in clock and clock.startswith("at ") else clock


def _clock(second: str, minute: str, hour: str) -> str | None:
    if second != "0":
        return _steps("second", second, 60) if (minute, hour) == ("*", "*") else None
    minutes, hours = _values(minute, 0, 59), _values(hour, 0, 23)
    if minutes is None or hours is None:
        return None
    if hour == "*":
        return _steps("minute", minute, 60) or _past(minutes)
    if len(minutes) * len(hours) <= MOST:
        return f"at {_and([f'{h:02}:{m:02}' for h in hours for m in minutes])}"
    return _between(minute, minutes, hours)


def _steps(unit: str, column: str, of: int) -> str | None:
    """Return words for equal steps, which also hold from one hour or minute to the next."""
    if column == "*" or column == "*/1":
        return f"every {unit}"
    step = column.removeprefix("*/")
    equal = column.startswith("*/") and step.isdigit() and int(step) < of and of % int(step) == 0
    return f"every {int(step)} {unit}s" if equal else None


def _past(minutes: Sequence[int]) -> str | None:
    if len(minutes) > MOST:
        return None
    return f"at minute{'s' * (len(minutes) != 1)} {_and([str(m) for m in minutes])} of every hour"


def _between(minute: str, minutes: Sequence[int], hours: Sequence[int]) -> str | None:
    """Return words like `every 15 minutes from 09:00 to 17:45`."""
    steps = _steps("minute", minute, 60)
    if steps is None or not _is_range(hours):
        return None
    return f"{steps} from {hours[0]:02}:00 to {hours[-1]:02}:{minutes[-1]:02}"


def _days(day: str, month: str, weekday: str) -> str | None:
    """Return the days in words, empty for all; None for a day of the month beside one of the week: too many words."""
    months, days, weekdays = _values(month, 1, 12), _values(day, 1, 31), _weekdays(weekday)
    if months is None or days is None or weekdays is None or (len(days) < 31 and len(weekdays) < 7):
        return None
    if len(days) > MOST and len(days) < 31:
        return None
    parts = []
    if len(weekdays) < 7:
        parts.append(_run([DAYS[d % 7] for d in weekdays], is_range=_is_range(weekdays)))
    if len(days) < 31:
        parts.append(f"on the {_and([_ordinal(d) for d in days])} of the month")
    if len(months) < 12:
        parts.append(f"in {_run([MONTHS[m - 1] for m in months], is_range=_is_range(months))}")
    return " ".join(parts)


def _weekdays(column: str) -> list[int] | None:
    """Return the days of the week, from Monday, 1, to Sunday, 7."""
    days = _values(column, 0, 7)
    return None if days is None else sorted({day or 7 for day in days})


_NAMES = {name[:3].lower(): n for n, name in enumerate(DAYS)} | {
    name[:3].lower(): n for n, name in enumerate(MONTHS, 1)
}


def _values(column: str, low: int, high: int) -> list[int] | None:
    """Return the matching values, in order; None if it is no list of values, ranges and steps."""
    values: set[int] = set()
    for item in column.split(","):
        span, slash, step = item.partition("/")
        first, dash, last = span.partition("-")
        begin, end = (low, high) if span == "*" else (_value(first), _value(last if dash else first))
        if begin is None or end is None or (slash and not step.isdigit()):
            return None
        if slash and span != "*" and not dash:
            end = high
        values.update(range(begin, end + 1, int(step or 1)))
    return sorted(values)


def _value(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else _NAMES.get(text)


def _is_range(values: Sequence[int]) -> bool:
    return list(values) == list(range(values[0], values[-1] + 1))


def _run(names: Sequence[str], *, is_range: bool) -> str:
    return f"{names[0]} to {names[-1]}" if is_range and len(names) > 2 else _and(names)


def _and(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _ordinal(n: int) -> str:
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
