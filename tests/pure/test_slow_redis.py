"""A slow Redis is blamed on a command that took its time, and on no other."""

from __future__ import annotations

import pytest

from celeriac.alerts.measure import _redis_lag
from celeriac.dispatch.publish import SlowCommand


@pytest.mark.parametrize(("seconds", "is_blamed"), [(0.2, True), (0.004, False)])
def test_who_took_no_time_is_not_the_cause(seconds: float, is_blamed: bool) -> None:
    """On a busy machine an answer is late though Redis was quick: the newest line of its log explains nothing then."""
    measured = _redis_lag(0.3, SlowCommand("EVAL", seconds, "127.0.0.1:5"))
    assert (measured.value, "EVAL" in (measured.sentence or "")) == (0.3, is_blamed)
