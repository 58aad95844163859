"""When a worker backs off, when it resumes, what it says, and how many browsers its memory has room for."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac import Settings
from celeriac.run import shared
from celeriac.worker.governor import Governor
from celeriac.worker.limits import BackOff, BackOffLimits, announcement, govern, tasks_that_fit
from celeriac.worker.resources import Usage

#: The defaults, which are the seed's: 85 %, 90 %, 10 s.
SEED = BackOffLimits(Settings().memory_backoff, Settings().cpu_backoff, Settings().backoff_duration)
NORMAL = BackOff()

shares = st.floats(0, 1.5)


def test_memory_above_its_threshold_is_a_reason() -> None:
    assert govern(NORMAL, 0.873, 0.5, SEED, now=100) == BackOff(
        "Memory at 87.3% (threshold: 85%)", until=110, short=("memory",)
    )


def test_cpu_above_its_threshold_is_a_reason() -> None:
    assert govern(NORMAL, 0.5, 0.93, SEED, now=0).reason == "CPU at 93.0% (threshold: 90%)"
    both = govern(NORMAL, 0.9, 0.93, SEED, now=0)
    assert both.reason == "Memory at 90.0% (threshold: 85%), CPU at 93.0% (threshold: 90%)"
    assert both.short == ("memory", "cpu")


def test_at_its_threshold_it_works() -> None:
    assert govern(NORMAL, 0.85, 0.90, SEED, now=0) == NORMAL


def test_a_back_off_lasts_its_time_and_ends_with_its_cause() -> None:
    backing_off = govern(NORMAL, 0.9, 0.1, SEED, now=0)
    assert govern(backing_off, 0.1, 0.1, SEED, now=9.9) == backing_off
    assert govern(backing_off, 0.9, 0.1, SEED, now=10) == BackOff(
        backing_off.reason, until=20, stuck=True, short=("memory",)
    )
    assert govern(backing_off, 0.1, 0.95, SEED, now=10).reason == "CPU at 95.0% (threshold: 90%)"
    assert govern(backing_off, 0.1, 0.1, SEED, now=10) == NORMAL


def test_it_is_stuck_where_memory_is_short_at_the_end_of_a_back_off() -> None:
    short_of_cpu = govern(NORMAL, 0.1, 0.95, SEED, now=0)
    assert not govern(short_of_cpu, 0.1, 0.95, SEED, now=10).stuck
    stuck = govern(govern(NORMAL, 0.9, 0.1, SEED, now=0), 0.9, 0.1, SEED, now=10)
    assert stuck.stuck
    assert govern(stuck, 0.1, 0.1, SEED, now=15).stuck, "until it looks again"
    assert govern(stuck, 0.1, 0.1, SEED, now=20) == NORMAL


@given(shares, shares)
def test_a_threshold_of_1_is_none(memory: float, cpu: float) -> None:
    assert govern(NORMAL, memory, cpu, BackOffLimits(1, 1, 10), now=0) == NORMAL


@given(st.lists(st.tuples(shares, shares, st.floats(0, 30))))
def test_it_says_so_once_at_either_end(readings: list[tuple[float, float, float]]) -> None:
    """Whatever is measured, the lines alternate, and a back-off is never shorter than its duration."""
    standing, now, lines, began = NORMAL, 0.0, [], 0.0
    for memory, cpu, later in readings:
        now += later
        after = govern(standing, memory, cpu, SEED, now)
        if line := announcement("w", standing.reason, after.reason):
            lines.append("backing off" in line)
            assert after.reason is not None or now - began >= SEED.duration - 1e-6
            began = now
        standing = after
    assert lines == [n % 2 == 0 for n in range(len(lines))]


def test_it_says_it_in_the_seeds_words() -> None:
    backing_off = govern(NORMAL, 0.873, 0.1, SEED, now=0)
    assert announcement("MyWorker", None, backing_off.reason) == (
        "[TaskWorker] MyWorker backing off: Memory at 87.3% (threshold: 85%)"
    )
    assert announcement("MyWorker", backing_off.reason, None) == "[TaskWorker] MyWorker resuming normal operation"
    assert announcement("MyWorker", backing_off.reason, backing_off.reason) is None


@pytest.mark.parametrize(
    ("limit", "browsers"), [(2000, 3), (2560, 4), (1050, 1), (1449, 1), (1450, 2), (500, 1), (0, 1)]
)
def test_the_seeds_memory_math(limit: float, browsers: int) -> None:
    assert tasks_that_fit(limit, 400) == browsers


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(" ")[2].partition(" ")[2] for record in caplog.records]


def test_what_it_lacks_keeps_it_backing_off_until_it_lacks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    governor = Governor(Settings(), lambda: None, threading.Event())
    governor.lack("Hardly a file descriptor is left")
    governor.lack("Hardly a file descriptor is left")
    governor.check()
    assert shared.backing_off()
    assert governor.resources()["backoff_reason"] == "Hardly a file descriptor is left"
    governor.lack(None)
    assert not shared.backing_off()
    assert lines(caplog) == [
        "backing off: Hardly a file descriptor is left", "resuming normal operation"
    ]  # fmt: skip


def test_it_resumes_once_neither_reason_is_left(caplog: pytest.LogCaptureFixture) -> None:
    governor = Governor(replace(Settings(), backoff_duration=0.0), lambda: None, threading.Event())
    used = [Usage(memory_mb=0.9), Usage(memory_mb=0.1)]
    governor.meter = SimpleNamespace(read=lambda: used.pop(0))  # type: ignore[assignment]
    governor.check()
    governor.lack("Hardly a file descriptor is left")
    governor.check()
    assert shared.backing_off()
    governor.lack(None)
    assert not shared.backing_off()
    assert lines(caplog) == ["backing off: Memory at 90.0% (threshold: 85%)", "resuming normal operation"]


def test_a_reason_that_comes_as_another_goes_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lifeline's thread has one, and the governor's the other."""
    governor = Governor(Settings(), lambda: None, threading.Event())
    governor.meter = SimpleNamespace(read=Usage)  # type: ignore[assignment]
    other = threading.Thread(target=governor.lack, args=("Hardly a file descriptor is left",))
    set_flag = shared.back_off

    def back_off(on: bool) -> None:
        if not on:
            other.start()
            other.join(0.2)
        set_flag(on)

    monkeypatch.setattr(shared, "back_off", back_off)
    governor.check()
    other.join()
    assert shared.backing_off()
    set_flag(on=False)
