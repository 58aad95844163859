"""What cron patterns mean, the slow way: every minute (or second) of a stretch of time is looked at.

Patterns are generated together with the values they stand for, so that nothing here reads a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@dataclass(frozen=True)
class Column:
    text: str
    values: frozenset[int]

    @property
    def starred(self) -> bool:
        return self.text[0] in "*?"


@dataclass(frozen=True)
class Meaning:
    """`columns` from the second to the day of the week; `finest` is what the text can tell apart."""

    text: str
    columns: tuple[Column, ...]
    finest: timedelta

    def matches(self, wall: datetime) -> bool:
        second, minute, hour, _, month, _ = self.columns
        clock = wall.hour in hour.values and wall.minute in minute.values and wall.second in second.values
        return clock and wall.month in month.values and self.on(wall)

    def on(self, day: datetime) -> bool:
        monthday, weekday = self.columns[3], self.columns[5]
        last = (day + timedelta(days=1)).day == 1 and "L" in monthday.text
        hits = day.day in monthday.values or last, day.isoweekday() % 7 in weekday.values
        return all(hits) if monthday.starred or weekday.starred else any(hits)

    def instants(self, start: datetime, end: datetime, zone: ZoneInfo) -> list[datetime]:
        walk = self._follow_clocks if self.columns[2].starred else self._once_each
        return list(walk(start, end, zone))

    def _follow_clocks(self, start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        while start <= end:
            if self.matches(start.astimezone(zone)):
                yield start
            start += self.finest

    def _once_each(self, start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        before = (start - self.finest).astimezone(zone).replace(tzinfo=None)
        while start <= end:
            now = start.astimezone(zone)
            wall, second_pass = now.replace(tzinfo=None, fold=0), now.fold == 1
            if not second_pass and any(self.matches(each) for each in self._readings(before, wall)):
                yield start
            before, start = wall, start + self.finest

    def _readings(self, before: datetime, wall: datetime) -> Iterator[datetime]:
        """Those the clocks were set past, and `wall`."""
        yield wall
        while (before := before + self.finest) < wall:
            yield before


@st.composite
def columns(draw: st.DrawFn, low: int, high: int, names: list[str] | None = None, top: int | None = None) -> Column:
    """A list of values, ranges and steps; `top` is 7 where 7 is Sunday as well."""
    items = draw(st.lists(_items(low, high, names or [], high if top is None else top), min_size=1, max_size=3))
    values = frozenset(v % 7 if top else v for _, several in items for v in several)
    return Column(",".join(text for text, _ in items), values)


@st.composite
def _items(draw: st.DrawFn, low: int, high: int, names: list[str], top: int) -> tuple[str, list[int]]:
    def word(value: int) -> str:
        name = names[value - low] if value - low < len(names) else ""
        return draw(st.sampled_from([str(value), f"0{value}", *([name, name.upper()] if name else [])]))

    kind = draw(st.sampled_from(["one", "one", "range", "range/", "one/", "*/", "*"]))
    first = draw(st.integers(low, top))
    last = draw(st.integers(first, top))
    step = draw(st.integers(1, high + 3))
    return {
        "one": (word(first), [first]),
        "range": (f"{word(first)}-{word(last)}", list(range(first, last + 1))),
        "range/": (f"{word(first)}-{word(last)}/{step}", list(range(first, last + 1, step))),
        "one/": (f"{word(first)}/{step}", list(range(first, max(first, high) + 1, step))),
        "*/": (f"*/{step}", list(range(low, high + 1, step))),
        "*": ("*", list(range(low, high + 1))),
    }[kind]


#: Hours at which clocks are set, often enough.
HOURS = columns(0, 23) | st.sampled_from(
    [Column("1", frozenset({1})), Column("2", frozenset({2})), Column("0-3", frozenset(range(4)))]
)
ANY_DAY = st.sampled_from([Column("*", frozenset(range(1, 32))), Column("?", frozenset(range(1, 32)))])
ANY_MONTH = st.just(Column("*", frozenset(range(1, 13))))
ANY_WEEKDAY = st.just(Column("*", frozenset(range(7))))
MONTHDAYS = columns(1, 31) | st.just(Column("L", frozenset())) | st.just(Column("10,L", frozenset({10})))
WEEKDAYS = columns(0, 6, DAYS, top=7)


@st.composite
def clocks(draw: st.DrawFn) -> Meaning:
    """Every day, at some times of the day; half of them with seconds."""
    minute, hour, day, month, weekday = (
        draw(each) for each in (columns(0, 59), HOURS, ANY_DAY, ANY_MONTH, ANY_WEEKDAY)
    )
    return _meaning(draw, minute, hour, day, month, weekday)


@st.composite
def calendars(draw: st.DrawFn) -> Meaning:
    """At midnight, on some days."""
    zero = Column("0", frozenset({0}))
    day, month, weekday = (
        draw(MONTHDAYS | ANY_DAY),
        draw(columns(1, 12, MONTHS) | ANY_MONTH),
        draw(WEEKDAYS | ANY_WEEKDAY),
    )
    text = " ".join(c.text for c in (zero, zero, day, month, weekday))
    return Meaning(text, (zero, zero, zero, day, month, weekday), timedelta(days=1))


def _meaning(draw: st.DrawFn, *five: Column) -> Meaning:
    second = draw(st.none() | columns(0, 59))
    if second is None:
        whole = Column("0", frozenset({0}))
        return Meaning(" ".join(c.text for c in five), (whole, *five), timedelta(minutes=1))
    return Meaning(" ".join(c.text for c in (second, *five)), (second, *five), timedelta(seconds=1))


#: Stretches around clocks being set (and one where they are not), in UTC.
SETTINGS = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 3, 29, 1, tzinfo=UTC)),
]
