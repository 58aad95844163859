"""The fields of a cron pattern: cronsim reads them, and its refusals get clearer messages here. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from cronsim import CronSim, CronSimError

from celeriac.errors import BadExpression


class Field(NamedTuple):
    """One field: its name, its bounds and a valid example."""

    name: str
    bounds: str
    example: str


MONTHDAY = Field("day of the month", "1-31", "1,15")
WEEKDAY = Field("day of the week", "0-7", "mon-fri")
FIELDS = (
    Field("second", "0-59", "*/30"),
    Field("minute", "0-59", "*/15"),
    Field("hour", "0-23", "9-17"),
    MONTHDAY,
    Field("month", "1-12", "jan-mar"),
    WEEKDAY,
)

#: Reasons for refusing an item: the first whose pattern it matches.
_WHY = (
    (r"", "a value is missing"),
    (r"\?", "'?' stands only for a day, and alone"),
    (r".*/0+", "a step of 0 never moves on"),
    (r".*#.*", "{item!r} is not like 'mon#1', the first to the fifth of a day of the week"),
    (r"[0-9]+", "{item} is not within {field.bounds}"),
    (r"[a-z]+", "{item!r} is no {field.name}"),
    (
        r"[a-z0-9]+-[a-z0-9]+(/[0-9]+)?",
        "the range {item} runs backwards (write two, with a comma) or leaves {field.bounds}",
    ),
    (r".*", "{item!r} is no value, range or step within {field.bounds}"),
)
_START = datetime(2000, 1, 1)  # noqa: DTZ001 - fields know no zone


#: A sign before the day of the week: both days have to match, as in Celery's `crontab`.
BOTH = "&"


def matches(pattern: str, after: datetime) -> CronSim:
    """Return the matching readings of the clocks, from `after` on."""
    readings = CronSim(pattern.replace(BOTH, ""), after)
    readings.day_and = readings.day_and or BOTH in pattern
    return readings


def read(text: str) -> str:
    """Return the pattern as cronsim takes it, in six fields; it is known to match some instants.

    Raises BadExpression, naming the field, what is wrong with it and what would be right.
    """
    columns = text.lower().split()
    if len(columns) not in (5, 6):
        raise BadExpression(
            f"{text!r} has {len(columns)} fields; write 5 (minute hour day month weekday), as in '*/30 * * * *', "
            "or 6 with the second first, as in '*/30 * * * * *'"
        )
    *five, weekday = ["0", *columns][-6:]
    six = [*five, weekday.removeprefix(BOTH)]
    *five, last = (_column(field, column) for field, column in zip(FIELDS, six, strict=True))
    pattern = " ".join([*five, f"{BOTH}{last}" if weekday.startswith(BOTH) else last])
    if not _comes(pattern):
        example = "0 0 28 2 *"
        raise BadExpression(f"{text!r} never comes: no such month has such a day; write for example {example!r}")
    return pattern


def _column(field: Field, column: str) -> str:
    if column == "?" and field in (MONTHDAY, WEEKDAY):
        return "*"
    return ",".join(_item(field, column, item) for item in column.split(","))


def _item(field: Field, column: str, item: str) -> str:
    spelled = _spelled_week(item) if field is WEEKDAY else item
    if not _taken(field, spelled):
        why = next(why for like, why in _WHY if re.fullmatch(like, item)).format(item=item, field=field)
        raise BadExpression(f"the {field.name} {column!r} is wrong: {why}; write for example {field.example!r} or '*'")
    return _one_value(field, spelled)


def _spelled_week(item: str) -> str:
    """Write `sat-sun` as `sat-7`, since Sunday is 0 to cronsim, and `3/2` as `3-6/2`, since it would go on to 7."""
    return re.sub(r"^([0-6a-z]+)/", r"\1-6/", re.sub(r"(?<!sun)(?<!0)-sun", "-7", item))


def _one_value(field: Field, item: str) -> str:
    """Write `5-5/2` as `5`, since cronsim takes it for `5/2`. Only a range of one value can be reversed."""
    low, _, high = item.partition("/")[0].partition("-")
    return low if _taken(field, f"{high}-{low}") else item


def _taken(field: Field, item: str) -> bool:
    """Return whether cronsim accepts the item without ignoring its step, as it does in `L/2`."""
    return not re.match(r"$|lw?/", item) and _comes(" ".join(item if each is field else "*" for each in FIELDS))


def _comes(pattern: str) -> bool:
    try:
        return next(matches(pattern, _START)) > _START
    except (CronSimError, StopIteration):
        return False
