"""A worker is live while its loop goes round, or while it has none."""

from __future__ import annotations

import pytest

from celeriac.worker import pulse
from celeriac.worker.pulse import FRESH, Pulse


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(pulse.time, "monotonic", lambda: now[0])
    return now


def test_one_that_starts_or_waits_is_live_and_not_ready(clock: list[float]) -> None:
    worker = Pulse()
    clock[0] += 10 * FRESH
    assert (worker.is_live(), worker.is_ready()) == (True, False)


def test_one_whose_loop_stands_still_is_neither(clock: list[float]) -> None:
    worker = Pulse()
    worker.consuming = True
    worker.stamp()
    assert (worker.is_live(), worker.is_ready()) == (True, True)
    clock[0] += FRESH
    assert (worker.is_live(), worker.is_ready()) == (False, False)
    worker.stamp()
    assert worker.is_ready()


def test_one_that_lost_its_connection_is_live_again(clock: list[float]) -> None:
    worker = Pulse()
    worker.consuming = True
    worker.stamp()
    worker.consuming = False
    clock[0] += FRESH
    assert (worker.is_live(), worker.is_ready()) == (True, False)


def test_one_that_drains_is_live_until_it_should_have_ended(clock: list[float]) -> None:
    worker = Pulse()
    worker.ends = clock[0] + 60
    assert worker.is_live()
    clock[0] += 61
    assert (worker.is_live(), worker.overdue()) == (False, 1)


def test_a_step_that_was_never_started_can_be_stopped() -> None:
    """As where Redis goes away while the worker connects for the first time."""
    pulse.PulseStep(None).stop(None)
    assert not pulse.PULSE.consuming
