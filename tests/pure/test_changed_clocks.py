"""When the clocks are set: which instants come where a reading never comes, or comes twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from celeriac.schedules.expressions import parse
from tests.pure.cron_oracle import SETTINGS
from tests.pure.test_expressions import BERLIN, LORD_HOWE, NEW_YORK, local, utc


def test_a_reading_that_never_comes_runs_once_at_once_after_the_gap() -> None:
    assert local("30 2 * * *", BERLIN, utc(2026, 3, 28), 48) == ["02:30+0100", "03:00+0200"]
    assert local("*/15 2 * * *", BERLIN, utc(2026, 3, 28, 12), 24) == ["03:00+0200"]
    assert local("30 2 * * *", NEW_YORK, utc(2026, 3, 8), 24) == ["03:00-0400"]
    assert local("15 2 * * *", LORD_HOWE, utc(2026, 10, 3), 24) == ["02:30+1100"]
    assert local("@daily", "Africa/Cairo", utc(2026, 4, 23, 12), 24) == ["01:00+0300"]


def test_a_day_that_never_comes_runs_once_when_the_next_begins() -> None:
    assert parse("0 12 30 12 *", "Pacific/Apia").following(utc(2011, 12, 1)) == utc(2011, 12, 30, 10)


def test_a_reading_that_comes_twice_runs_in_the_first_pass() -> None:
    assert local("30 2 * * *", BERLIN, utc(2026, 10, 24, 12), 48) == ["02:30+0200", "02:30+0100"]
    assert local("*/30 1-2 * * *", BERLIN, utc(2026, 10, 24, 20), 12) == [
        "01:00+0200",
        "01:30+0200",
        "02:00+0200",
        "02:30+0200",
    ]
    assert local("45 1 * * *", LORD_HOWE, utc(2026, 4, 4), 24) == ["01:45+1100"]


def test_in_the_second_pass_nothing_of_the_first_comes_again() -> None:
    second_pass = utc(2026, 10, 25, 1, 10)
    assert parse("30 2 * * *", BERLIN).following(second_pass) == utc(2026, 10, 26, 1, 30)
    assert parse("0 2-3 * * *", BERLIN).following(second_pass) == utc(2026, 10, 25, 2)


@pytest.mark.parametrize(("zone", "at"), SETTINGS)
def test_a_wildcard_hour_misses_and_doubles_no_half_hour_in_utc(zone: str, at: datetime) -> None:
    half_hours = parse("*/30 * * * *", zone)
    found = half_hours.instants(half_hours.following(at - timedelta(days=1)), at + timedelta(days=1), 1000)
    assert {after - before for before, after in pairwise(found)} == {timedelta(minutes=30)}
    assert len(found) == 96


def test_a_wildcard_hour_runs_in_both_passes_and_skips_what_never_comes() -> None:
    assert local("15 * * * *", BERLIN, utc(2026, 10, 24, 23), 4) == [
        "01:15+0200",
        "02:15+0200",
        "02:15+0100",
        "03:15+0100",
    ]
    assert local("15 * * * *", BERLIN, utc(2026, 3, 29), 2) == ["01:15+0100", "03:15+0200"]
    assert local("45 * * * *", LORD_HOWE, utc(2026, 4, 4, 14), 2) == ["01:45+1100", "01:45+1030"]
    assert local("0 * * * *", LORD_HOWE, utc(2026, 10, 3, 14), 3) == ["01:00+1030", "03:00+1100", "04:00+1100"]


def test_a_rare_wildcard_hour_crosses_many_settings_of_the_clocks() -> None:
    assert parse("0 * 29 2 *", BERLIN).following(utc(2096, 3, 1)) == utc(2104, 2, 28, 23)
