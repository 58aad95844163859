"""What is decided without asking anybody: settings, pace, Retry-After."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celeriac import ConfigurationError, Snooze
from tasks.duda import DudaSettings, domain_prefix_for
from tasks.environment import _tell
from tasks.instasites import Wanted, build, publish
from tasks.pace import RETRY_AFTER_DEFAULT, RETRY_AFTER_LIMIT, Pace, retry_after_seconds

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ENVIRON = {"DUDA_API_USER": "user", "DUDA_API_PASSWORD": "secret"}


# Settings


def test_settings_have_the_documented_defaults() -> None:
    read = DudaSettings.from_env(ENVIRON)
    assert (read.base_url, read.requests_per_second) == ("https://api.duda.co/api", 8)


def test_settings_are_read_from_the_environment() -> None:
    read = DudaSettings.from_env(
        ENVIRON
        | {
            "DUDA_BASE_URL": "https://api-sandbox.duda.co/api",
            "DUDA_TIMEOUT_SECONDS": "2.5",
            "DUDA_CONNECT_TIMEOUT_SECONDS": "1",
            "DUDA_REQUESTS_PER_SECOND": "4",
        }
    )
    assert read == DudaSettings("user", "secret", "https://api-sandbox.duda.co/api", 2.5, 1.0, 4.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DUDA_API_USER", ""),
        ("DUDA_API_PASSWORD", ""),
        ("DUDA_BASE_URL", "api.duda.co"),
        ("DUDA_BASE_URL", "ftp://api.duda.co/api"),
        ("DUDA_BASE_URL", "https://user:hunter2@api.duda.co/api"),
        ("DUDA_BASE_URL", "https://[api.duda.co"),
        ("DUDA_TIMEOUT_SECONDS", "soon"),
        ("DUDA_TIMEOUT_SECONDS", "-1"),
        ("DUDA_CONNECT_TIMEOUT_SECONDS", "nan"),
        ("DUDA_REQUESTS_PER_SECOND", "0"),
        ("DUDA_REQUESTS_PER_SECOND", "inf"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as wrong:
        DudaSettings.from_env(ENVIRON | {name: value})
    assert "secret" not in str(wrong.value)
    assert "hunter2" not in str(wrong.value)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(DudaSettings.from_env(ENVIRON))


# Pace


@dataclass
class Clock:
    """Time that passes only by sleeping."""

    now: float = 1000.0
    sleeps: list[float] = field(default_factory=list)

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def test_calls_are_spaced_evenly_and_the_first_does_not_wait() -> None:
    clock = Clock()
    pace = Pace(8, clock.read, clock.sleep)
    for _ in range(5):
        pace.wait()
    assert clock.sleeps == [0.125] * 4


def test_time_that_passed_anyway_is_not_waited_for_nor_saved_up() -> None:
    clock = Clock()
    pace = Pace(4, clock.read, clock.sleep)
    pace.wait()
    clock.now += 0.2
    pace.wait()
    clock.now += 10
    pace.wait()
    pace.wait()
    assert clock.sleeps == [pytest.approx(0.05), pytest.approx(0.25)]


def test_threads_get_different_turns() -> None:
    """With the clock standing still, 50 callers are told to wait for 50 different moments."""
    delays: list[float] = []
    pace = Pace(10, lambda: 0.0, delays.append)
    threads = [threading.Thread(target=pace.wait) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(delays) == pytest.approx([n / 10 for n in range(1, 50)])


@settings(deadline=None)
@given(st.lists(st.floats(0, 2), min_size=1, max_size=50), st.floats(0.5, 20))
def test_no_two_calls_are_closer_than_the_interval(pauses: list[float], per_second: float) -> None:
    clock, moments = Clock(), []
    pace = Pace(per_second, clock.read, clock.sleep)
    for pause in pauses:
        clock.now += pause
        pace.wait()
        moments.append(clock.now)
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert all(gap >= 1 / per_second - 1e-9 for gap in gaps)


# Retry-After (the dates are RFC 9110's three forms of one)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30),
        ("Sun Mar  1 12:00:30 2026", 30),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Sun, 01 Mar 2099 11:00:00 GMT", RETRY_AFTER_LIMIT),
        ("9" * 400, RETRY_AFTER_LIMIT),
        (None, RETRY_AFTER_DEFAULT),
        ("", RETRY_AFTER_DEFAULT),
        ("-5", RETRY_AFTER_DEFAULT),
        ("1.5", RETRY_AFTER_DEFAULT),
        ("soon", RETRY_AFTER_DEFAULT),
        ("Sun, 99 Mar 2026 12:00:30 GMT", RETRY_AFTER_DEFAULT),
    ],
)
def test_retry_after_is_read_in_every_form(value: str | None, seconds: float) -> None:
    assert retry_after_seconds(value, NOW) == seconds


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_retry_after_breaks_the_client_or_stops_it_for_good(value: str) -> None:
    assert 0 <= retry_after_seconds(value, NOW) <= RETRY_AFTER_LIMIT


@settings(deadline=None)
@given(st.integers(0, 3600))
def test_a_date_means_the_seconds_until_then(seconds: int) -> None:
    moment = NOW + timedelta(seconds=seconds)
    assert retry_after_seconds(moment.strftime("%a, %d %b %Y %H:%M:%S GMT"), NOW) == seconds


# Domain prefixes


def test_a_derived_prefix_is_stable_distinct_and_of_a_length_duda_takes() -> None:
    prefixes = {domain_prefix_for(f"job-{n}") for n in range(1000)}
    assert len(prefixes) == 1000
    assert {len(prefix) for prefix in prefixes} == {21}
    assert domain_prefix_for("job-1") == "site-026ab639c21df8aa"  # Changing it would create sites twice.


def test_a_build_where_duda_is_not_set_up_waits_for_it_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DUDA_API_USER", raising=False)
    _tell.cache_clear()
    for site in (1, 2):
        with pytest.raises(Snooze, match="snoozed for 60 s: DUDA_API_USER is empty: set it"):
            publish(build, site, Wanted(1, {}, None))
    (record,) = caplog.records
    assert record.getMessage().startswith("tasks wait until this is mended: DUDA_API_USER is empty: set it")
