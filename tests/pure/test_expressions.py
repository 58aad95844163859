"""When something runs: what is accepted, what is refused and how, and which instants come out."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import settings as runs
from hypothesis import strategies as st

from celeriac.errors import BadExpression
from celeriac.schedules.expressions import Every, parse
from tests.deploy.written import of
from tests.examples import of_a_hundred
from tests.processes import ROOT
from tests.pure.cron_oracle import SETTINGS, Meaning, calendars, clocks

EXAMPLES = of("docs/expressions.md", "python")

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def local(text: str, zone: str, start: datetime, hours: float) -> list[str]:
    """What the clocks of `zone` read at the instants within `hours` after `start`."""
    expression = parse(text, zone)
    found = expression.instants(expression.following(start), start + timedelta(hours=hours), 1_000)
    return [f"{each.astimezone(ZoneInfo(zone)):%H:%M%z}" for each in found]


# --- What is accepted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("@yearly", utc(2027, 1, 1)),
        ("@annually", utc(2027, 1, 1)),
        ("@monthly", utc(2026, 2, 1)),
        ("@weekly", utc(2026, 1, 4)),
        ("@daily", utc(2026, 1, 2)),
        ("@midnight", utc(2026, 1, 2)),
        ("@hourly", utc(2026, 1, 1, 1)),
        ("@HOURLY", utc(2026, 1, 1, 1)),
        ("  @Daily ", utc(2026, 1, 2)),
        ("0 * * * *", utc(2026, 1, 1, 1)),
        ("*/30 * * * *", utc(2026, 1, 1, 0, 30)),
        ("*/30 * * * * *", utc(2026, 1, 1, 0, 0, 30)),
        ("15 0 12 * * *", utc(2026, 1, 1, 12, 0, 15)),
        ("0 9 ? * MON-FRI", utc(2026, 1, 1, 9)),
        ("0 0 * FEB 7", utc(2026, 2, 1)),
        ("0 0 * * sat-sun", utc(2026, 1, 3)),
        ("0 0 5-5 * *", utc(2026, 1, 5)),
        ("0 0 L * *", utc(2026, 1, 31)),
        ("0 0 LW * *", utc(2026, 1, 30)),
        ("0 0 * * mon#2,fri#5", utc(2026, 1, 12)),
        ("0 0 * * wed,fri#5", utc(2026, 1, 7)),
        ("0 0 31 * mon#2", utc(2026, 1, 12)),
        ("0 0 * * 5L", utc(2026, 1, 30)),
        ("0 0 * 2 mon#5", utc(2044, 2, 29)),
        ("0 0 29 2 *", utc(2028, 2, 29)),
        ("0 0 31 4 mon", utc(2026, 4, 6)),
        ("0 0 */2 * mon", utc(2026, 1, 5)),
    ],
)
def test_words_and_patterns_mean_what_the_documents_say(text: str, then: datetime) -> None:
    assert parse(text).following(NEW_YEAR) == then


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("@every 1h", timedelta(hours=1)),
        ("@every 30m", timedelta(minutes=30)),
        ("@every 7d", timedelta(days=7)),
        ("@EVERY 1h30m", timedelta(minutes=90)),
        ("@every 1.5h", timedelta(minutes=90)),
        ("@every +.5h1s", timedelta(seconds=1801)),
        ("@every 50ms", timedelta(milliseconds=50)),
        ("@every 10000us", timedelta(milliseconds=10)),
        ("@every 10001\u00b5s", timedelta(microseconds=10_001)),
        ("@every 10001\u03bcs", timedelta(microseconds=10_001)),
        ("@every 10001400ns", timedelta(microseconds=10_001)),
        ("@every   1h1h", timedelta(hours=2)),
        ("@every 36525d", timedelta(days=36_525)),
    ],
)
def test_every_takes_durations_as_go_writes_them_and_days(text: str, period: timedelta) -> None:
    expression = parse(text)
    assert expression.first(NEW_YEAR) == expression.following(NEW_YEAR) == NEW_YEAR + period


def test_a_prefix_goes_before_the_time_zone_given() -> None:
    for text in ("CRON_TZ=Europe/Berlin 0 5 * * *", "TZ=Europe/Berlin  0 5 * * *"):
        expression = parse(text, "Asia/Kolkata")
        assert (expression.text, expression.timezone) == (text, BERLIN)
        assert expression.following(NEW_YEAR) == utc(2026, 1, 1, 4)
    assert parse("TZ=Asia/Kolkata @daily").following(NEW_YEAR) == utc(2026, 1, 1, 18, 30)


def test_an_expression_keeps_its_text_and_is_made_once() -> None:
    assert parse(" 0 5 * * * ").text == "0 5 * * *"
    assert parse("0 5 * * *") is parse("0 5 * * *")


def test_the_page_about_expressions_tells_the_truth() -> None:
    page = (ROOT / "docs" / "expressions.md").read_text()
    for block in EXAMPLES:
        exec(block.text, {})
    shown = re.findall(r"`((?:@|\*/|CRON_TZ=)[^`]* [^`]*)`", page)
    assert len(shown) > 4
    assert all(parse(text).following(NEW_YEAR) for text in shown)


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrong", "right"),
    [
        ("", "0 fields", "*/30 * * * *"),
        ("* * * *", "4 fields", "*/30 * * * *"),
        ("* * * * * * 2030", "7 fields", "*/30 * * * * *"),
        ("60 * * * *", "the minute '60' is wrong: 60 is not within 0-59", "*/15"),
        ("0 24 * * *", "the hour '24'", "9-17"),
        ("0 0 0 * *", "the day of the month '0'", "1,15"),
        ("0 0 * 13 *", "the month '13'", "jan-mar"),
        ("0 0 * foo *", "'foo' is no month", "jan-mar"),
        ("0 0 * * 8", "8 is not within 0-7", "mon-fri"),
        ("*/0 * * * *", "a step of 0", "*/15"),
        ("1,,2 * * * *", "a value is missing", "*/15"),
        ("-5 * * * *", "'-5' is no value", "*/15"),
        ("*-5 * * * *", "'*-5' is no value", "*/15"),
        ("0 22-2 * * *", "22-2 runs backwards", "9-17"),
        ("? * * * *", "'?' stands only for a day", "*/15"),
        ("0 0 15W * *", "the day of the month '15w'", "1,15"),
        ("H * * * *", "'h' is no minute", "*/15"),
        ("0 0 L/2 * *", "the day of the month 'l/2'", "1,15"),
        ("0 22-2/3 * * *", "22-2/3 runs backwards", "9-17"),
        ("0 0 * * mon#6", "'mon#6' is not like 'mon#1'", "mon-fri"),
        ("\u0663 * * * *", "is no value", "*/15"),
        ("0 0 30 2 *", "never comes", "0 0 28 2 *"),
        ("0 0 31 2,4,6,9,11 *", "never comes", "0 0 28 2 *"),
        ("0 0 */20 * 1L", "never comes", "0 0 28 2 *"),
        ("@dayly", "there is no '@dayly'", "'@daily'"),
        ("@evry 5m", "there is no '@evry 5m'", "'@every 1h30m'"),
        ("@every", "no duration", "@every 30s"),
        ("@every 5", "no unit after 5", "@every 30s"),
        ("@every 5M", "the unknown unit 'M'", "@every 30s"),
        ("@every 1h 30m", "the unknown unit 'h '", "@every 1h30m"),
        ("@every h", "no number", "@every 30s"),
        ("@every -1h", "no number", "@every 30s"),
        ("@every 0s", "too short", "@every 30s"),
        ("@every 1ns", "too short", "@every 30s"),
        ("@every 9.999ms", "too short", "@every 30s"),
        ("@every 36525d1ns", "too long", "@every 30s"),
        ("@every " + "9" * 400 + "d", "too long", "@every 30s"),
        ("*" * 501, "501 characters", "*/30 * * * *"),
        ("TZ=Berlin @daily", "no time zone 'Berlin'", "'Europe/Berlin'"),
        ("TZ=europe/berlin @daily", "no time zone 'europe/berlin'", "'Europe/Berlin'"),
        ("TZ= @daily", "no time zone ''", "'Europe/Berlin'"),
        ("TZ=../../etc/passwd @daily", "no time zone", "'"),
    ],
)
def test_a_bad_expression_is_refused_with_what_is_wrong_and_an_example(text: str, wrong: str, right: str) -> None:
    with pytest.raises(BadExpression) as refused:
        parse(text)
    assert wrong in str(refused.value)
    assert right in str(refused.value)


def test_an_unknown_time_zone_suggests_a_near_one() -> None:
    with pytest.raises(BadExpression, match=r"no time zone 'America/New York'.*'America/New_York'"):
        parse("@daily", "America/New York")


@given(st.text(max_size=30) | st.text("*/-,?#@0123456789lhwmonjaTZ= ", max_size=30))
def test_whatever_the_text_it_is_refused_or_comes(text: str) -> None:
    try:
        expression = parse(text)
    except BadExpression:
        return
    assert expression.following(NEW_YEAR) > NEW_YEAR


def test_a_moment_without_a_time_zone_is_no_instant() -> None:
    for text in ("@daily", "@every 1h"):
        with pytest.raises(ValueError, match="has no time zone"):
            parse(text).following(datetime(2026, 1, 1))


@given(clocks(), st.sampled_from(SETTINGS), st.integers(-5400, 5400))
@runs(max_examples=of_a_hundred(60))
def test_instants_are_those_found_by_looking_at_every_minute(
    meaning: Meaning, setting: tuple[str, datetime], shift: int
) -> None:
    zone, at = setting
    reach = 120 * meaning.finest * 60 if meaning.finest == timedelta(seconds=1) else timedelta(days=1)
    start, end = at + timedelta(seconds=shift // 60 * 60) - reach, at + timedelta(seconds=shift // 60 * 60) + reach
    expression = parse(meaning.text, zone)
    found = expression.instants(expression.following(start - timedelta(microseconds=1)), end, 100)
    assert found == meaning.instants(start, end, ZoneInfo(zone))[:100]


@given(clocks(), st.sampled_from(SETTINGS), st.integers(-7200, 7200), st.integers(0, 999_999))
def test_the_following_instant_is_the_first_one_later_than_the_moment(
    meaning: Meaning, setting: tuple[str, datetime], shift: int, micros: int
) -> None:
    zone, at = setting
    moment = at + timedelta(seconds=shift, microseconds=micros)
    found = parse(meaning.text, zone).following(moment)
    assert moment < found
    assert parse(meaning.text, zone).following(moment.astimezone(ZoneInfo(zone))) == found
    whole = moment.replace(second=0, microsecond=0)
    looked = meaning.instants(whole, min(found, whole + timedelta(hours=3)), ZoneInfo(zone))
    assert [each for each in looked if each > moment] == [found] * (found <= whole + timedelta(hours=3))


@given(calendars(), st.integers(2020, 2040))
@example(Meaning("0 0 31 * *", (), timedelta(days=1)), 2026)
def test_days_are_those_found_by_looking_at_every_day(meaning: Meaning, year: int) -> None:
    if not meaning.columns:
        expected = [utc(year, month, 31) for month in (1, 3, 5, 7, 8, 10, 12)]
    else:
        expected = meaning.instants(utc(year, 1, 1), utc(year, 12, 31), ZoneInfo("UTC"))
    try:
        expression = parse(meaning.text)
    except BadExpression:
        assert not meaning.instants(utc(2000, 1, 1), utc(2008, 1, 1), ZoneInfo("UTC"))
        return
    found = expression.instants(expression.following(utc(year - 1, 12, 31)), utc(year, 12, 31), 400)
    assert found == expected


@given(st.sampled_from(["@every 50ms", "@every 7d", "@every 1h30m", "@every 10001us"]), MOMENTS, MOMENTS)
def test_a_resumed_series_of_every_goes_on_in_step(text: str, last: datetime, now: datetime) -> None:
    expression = parse(text)
    assert isinstance(expression, Every)
    found = expression.resume(last, now)
    assert found > max(last, now)
    assert (found - last) % expression.every == timedelta(0)
    assert found - expression.every <= max(last, now)


@given(MOMENTS, MOMENTS)
def test_a_resumed_cron_goes_on_with_the_first_match_after_both(last: datetime, now: datetime) -> None:
    expression = parse("30 2 * * *", BERLIN)
    assert expression.resume(last, now) == expression.following(max(last, now))


@given(MOMENTS, st.integers(0, 9))
def test_instants_are_oldest_first_within_the_end_and_the_limit(first: datetime, limit: int) -> None:
    expression = parse("@every 1h")
    found = expression.instants(first, first + timedelta(hours=5), limit)
    assert found == [first + timedelta(hours=n) for n in range(6)][:limit]
    assert expression.instants(first, first - timedelta(microseconds=1), 9) == []


@given(MOMENTS)
def test_following_never_stands_still(moment: datetime) -> None:
    for text in ("*/30 * * * *", "30 2 * * *", "@every 50ms", "*/30 * * * * *", "0 0 29 2 *"):
        expression = parse(text, BERLIN)
        assert moment < expression.following(moment) < expression.following(expression.following(moment))
