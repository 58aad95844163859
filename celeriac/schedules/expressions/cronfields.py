"""The fields of a cron pattern, read strictly: each becomes the plain list of its values. Pure.

Stricter than croniter, which takes `5-5` for the whole range, `22-2` for a range around midnight and `h`, `r` and `w`
for more; and its messages do not say which field is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from celeriac.errors import BadExpression

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its bounds, its names (the first one is the lowest value) and an example that is right."""

    name: str
    low: int
    high: int
    example: str
    names: tuple[str, ...] = ()
    top: int | None = None

    @property
    def largest(self) -> int:
        """The largest value that may be written; 7 is Sunday as 0 is."""
        return self.high if self.top is None else self.top


SECOND = Field("second", 0, 59, "*/30")
MINUTE = Field("minute", 0, 59, "*/15")
HOUR = Field("hour", 0, 23, "9-17")
MONTHDAY = Field("day of the month", 1, 31, "1,15")
MONTH = Field("month", 1, 12, "jan-mar", MONTHS)
WEEKDAY = Field("day of the week", 0, 6, "mon-fri", DAYS, top=7)

#: Five columns, or six with the seconds first, as node-cron writes them.
COLUMNS = (SECOND, MINUTE, HOUR, MONTHDAY, MONTH, WEEKDAY)

_ITEM = re.compile(r"(?P<low>\*|[a-z]+|[0-9]{1,4})(-(?P<high>[a-z]+|[0-9]{1,4}))?(/(?P<step>[0-9]{1,4}))?")
_NTH = re.compile(r"(?P<day>[a-z]+|[0-9]{1,4})#(?P<nth>[1-5])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """What croniter is given: canonical columns, seconds first if there are six, and how the two days combine."""

    columns: tuple[str, ...]
    either_day: bool
    every_hour: bool


def read(text: str) -> Pattern:
    """Raises BadExpression, naming the field, what is wrong with it and what would be right."""
    columns = text.lower().split()
    if len(columns) not in (5, 6):
        raise BadExpression(
            f"{text!r} has {len(columns)} fields; write 5 (minute hour day month weekday), as in '*/30 * * * *', "
            "or 6 with the second first, as in '*/30 * * * * *'"
        )
    hour, monthday, _, weekday = columns[-4:]
    if "#" in weekday and monthday not in ("*", "?"):
        raise _bad(WEEKDAY, weekday, "'#' goes only with '*' as the day of the month")
    return Pattern(
        columns=tuple(_column(field, column) for field, column in zip(COLUMNS[-len(columns) :], columns, strict=True)),
        either_day=not monthday.startswith("*") and not weekday.startswith("*"),
        every_hour=hour.startswith("*"),
    )


def _column(field: Field, column: str) -> str:
    if column == "*" or (column == "?" and field in (MONTHDAY, WEEKDAY)):
        return "*"
    if column == "?":
        raise _bad(field, column, "'?' stands only for a day")
    if field is WEEKDAY and "#" in column:
        return ",".join(_nth(field, column, item) for item in column.split(","))
    last = ["l"] if field is MONTHDAY and "l" in column.split(",") else []
    plain = {value for item in column.split(",") if item not in last for value in _values(field, column, item)}
    return ",".join([*map(str, sorted(plain)), *last])


def _nth(field: Field, column: str, item: str) -> str:
    match = _NTH.fullmatch(item)
    if match is None:
        raise _bad(field, column, f"{item!r} is not like 'mon#1', the first Monday")
    return f"{_value(field, column, match['day']) % 7}#{match['nth']}"


def _values(field: Field, column: str, item: str) -> list[int]:
    match = _ITEM.fullmatch(item)
    if match is None or (match["low"] == "*" and match["high"]):
        raise _bad(field, column, f"{item!r} is no value, range or step" if item else "a value is missing")
    low, high = _bounds(field, column, match)
    step = int(match["step"] or 1)
    if step == 0:
        raise _bad(field, column, "a step of 0 never moves on")
    return [value % 7 if field is WEEKDAY else value for value in range(low, high + 1, step)]


def _bounds(field: Field, column: str, match: re.Match[str]) -> tuple[int, int]:
    if match["low"] == "*":
        return field.low, field.high
    low = _value(field, column, match["low"])
    if match["high"] is None:
        return low, max(low, field.high) if match["step"] else low
    high = _value(field, column, match["high"])
    if match["high"] == "sun" and low > 0:
        high = 7
    if high < low:
        raise _bad(field, column, f"the range {match['low']}-{match['high']} runs backwards; write two, with a comma")
    return low, high


def _value(field: Field, column: str, word: str) -> int:
    if word in field.names:
        return field.names.index(word) + field.low
    if not word.isdigit():
        raise _bad(field, column, f"{word!r} is no {field.name}")
    if not field.low <= int(word) <= field.largest:
        raise _bad(field, column, f"{int(word)} is not within {field.low}-{field.largest}")
    return int(word)


def _bad(field: Field, column: str, why: str) -> BadExpression:
    return BadExpression(f"the {field.name} {column!r} is wrong: {why}; write for example {field.example!r} or '*'")
