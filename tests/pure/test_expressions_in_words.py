"""An expression in words says just what it means, or nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.errors import BadExpression
from celeriac.schedules.expressions import parse
from celeriac.schedules.expressions.words import DAYS, MONTHS, in_words, phrase
from tests.pure.cron_oracle import Column, Meaning, calendars, clocks, columns


def words(text: str) -> str | None:
    return in_words(parse(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@hourly", "at minute 0 of every hour"),
        ("@daily", "at 00:00 every day"),
        ("@weekly", "at 00:00, Sunday"),
        ("@monthly", "at 00:00, on the 1st of the month"),
        ("@yearly", "at 00:00, on the 1st of the month in January"),
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/30 * * * * *", "every 30 seconds"),
        ("*/15 * * * *", "every 15 minutes"),
        ("5,35 * * * *", "at minutes 5 and 35 of every hour"),
        ("0 3 * * *", "at 03:00 every day"),
        ("30 */6 * * *", "at 00:30, 06:30, 12:30 and 18:30 every day"),
        ("0 5 * * mon-fri", "at 05:00, Monday to Friday"),
        ("0 9 ? * sat,sun", "at 09:00, Saturday and Sunday"),
        ("*/10 9-17 * * 1-5", "every 10 minutes from 09:00 to 17:50, Monday to Friday"),
        ("0 0 1,15 * *", "at 00:00, on the 1st and 15th of the month"),
        ("0 0 22,23,31 3-5 *", "at 00:00, on the 22nd, 23rd and 31st of the month in March to May"),
        ("0 0 * feb *", "at 00:00, in February"),
        ("@every 1m", "every minute"),
        ("@every 90m", "every 1 hour and 30 minutes"),
        ("@every 36h", "every 1 day and 12 hours"),
        ("@every 30s", "every 30 seconds"),
    ],
)
def test_what_is_usual_is_said_in_few_words(text: str, said: str) -> None:
    assert words(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "*/7 * * * *",  # 56, and then 0: not every 7 minutes
        "*/45 * * * * *",
        "30 * * * * *",
        "*/5 8,17 * * *",
        "0 0 1 * mon",  # one of them, or both
        "0 0 1-7 * &mon",
        "0 0 L * *",
        "0 0 LW * *",
        "0 0 * * mon#1",
        "0 0 */2 * *",
        "@every 1500ms",
        "@solar sunset 52.5 13.4",
    ],
)
def test_what_few_words_do_not_say_is_not_said(text: str) -> None:
    assert words(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 5 * * *", "at 05:00 every day"),
        ("TZ=Asia/Tokyo 0 5 * * *", "at 05:00 every day, in Asia/Tokyo"),
        ("TZ=UTC 0 5 * * *", "at 05:00 every day"),
        ("0 25 * * *", None),
    ],
)
def test_a_schedule_says_its_zone_where_its_expression_has_another(text: str, said: str | None) -> None:
    assert phrase(text, "UTC") == said


LIST = r"{0}(?:(?:, | and ){0})*"
CLOCK = re.compile(
    rf"(?P<clock>at {LIST.format(r'[0-9]+:[0-9]+')}|at minutes? (?P<minutes>{LIST.format('[0-9]+')}) of every hour"
    r"|every (?P<step>[0-9]+ )?(?P<unit>second|minute)s?(?: from (?P<first>[0-9]+):00 to (?P<last>[0-9]+:[0-9]+))?)"
    r"(?: every day|, (?P<days>.+))?"
)


def seconds(said: re.Match[str]) -> set[int]:
    """Of a day, as somebody would take these words."""
    if said["minutes"]:
        return {h * 3_600 + int(m) * 60 for h in range(24) for m in re.findall("[0-9]+", said["minutes"])}
    if said["clock"].startswith("at "):
        return {int(h) * 3_600 + int(m) * 60 for h, m in re.findall("([0-9]+):([0-9]+)", said["clock"])}
    step = int(said["step"] or 1) * (60 if said["unit"] == "minute" else 1)
    hour, minute = map(int, (said["last"] or "24:00").split(":"))
    return set(range(int(said["first"] or 0) * 3_600, hour * 3_600 + minute * 60 + bool(said["last"]), step))


def named(names: Sequence[str], said: str) -> list[int]:
    """Where the names stand that are said, all if none is."""
    at = [names.index(name) for name in re.findall("|".join(names), said)]
    return [*range(at[0], at[1] + 1)] if " to " in said and at else at or [*range(len(names))]


WEEK = [*DAYS[1:], DAYS[0]]

SOME = st.sampled_from


def few(low: int, high: int, top: int | None = None) -> st.SearchStrategy[Column]:
    """What people write, mostly."""
    return SOME([Column("*", frozenset(range(low, high + 1)))]) | columns(low, high, top=top)


@st.composite
def usual(draw: st.DrawFn) -> Meaning:
    zero, (day, month, week) = Column("0", frozenset({0})), (few(1, 31), few(1, 12), few(0, 6, 7))
    five = [draw(SOME([zero]) | few(0, 59)), draw(few(0, 23)), *(draw(each) for each in (day, month, week))]
    return Meaning(" ".join(column.text for column in five), (zero, *five), timedelta(minutes=1))


@given(usual() | clocks() | calendars())
def test_the_words_say_just_the_instants_of_the_pattern(meaning: Meaning) -> None:
    try:
        said = words(meaning.text)
    except BadExpression:  # a day that never comes
        said = None
    if said is None:
        return
    second, minute, hour, day, month, weekday = (column.values for column in meaning.columns)
    found = CLOCK.fullmatch(said)
    assert found, said
    assert seconds(found) == {h * 3_600 + m * 60 + s for h in hour for m in minute for s in second}
    days = found["days"] or ""
    ordinals = {int(n) for n in re.findall("([0-9]+)(?:st|nd|rd|th)", days)}
    assert (ordinals or set(range(1, 32))) == day
    assert {m + 1 for m in named(MONTHS, days.partition("in ")[2])} == month
    assert {(d + 1) % 7 for d in named(WEEK, days.partition("in ")[0])} == weekday
