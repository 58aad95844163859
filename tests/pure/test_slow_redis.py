"""A slow Redis is blamed on a command that took its time, and on no other."""

from __future__ import annotations

import pytest

from celeriac.alerts.measure import _redis_lag
from celeriac.alerts.rules import RULES, evaluate
from celeriac.dispatch.asking import AnswerTime, SlowCommand
from celeriac.insights.history.alerts import damage
from celeriac.settings import Settings


@pytest.mark.parametrize(("seconds", "is_blamed"), [(0.2, True), (0.004, False)])
def test_who_took_no_time_is_not_the_cause(seconds: float, is_blamed: bool) -> None:
    """On a busy machine an answer is late though Redis was quick: the newest line of its log explains nothing then."""
    measured = _redis_lag(AnswerTime(0.3, 0.0), SlowCommand("EVAL", seconds, "127.0.0.1:5"))
    assert (measured.value, "EVAL" in (measured.sentence or "")) == (0.3, is_blamed)


@pytest.mark.parametrize(
    ("seconds", "least", "is_slow"),
    [(0.12, 0.001, True), (0.15, 0.12, False), (0.25, 0.12, True), (0.45, 0.4, False), (0.6, 0.55, True)],
)
def test_an_answer_is_slow_by_the_way_it_has_to_go(seconds: float, least: float, is_slow: bool) -> None:
    """Beyond what publishers wait for, wherever Redis is."""
    measured = _redis_lag(AnswerTime(seconds, least), None)
    assert [one.name for one in evaluate(RULES, [measured], Settings())] == ["slow_redis"] * is_slow


def test_what_stops_work_comes_before_a_redis_that_work_goes_on_without() -> None:
    away = damage("redis_away", "page")
    assert all(damage(name, "page") < away for name in ("beat_silent", "no_worker", "fails_now", "held_lock"))
