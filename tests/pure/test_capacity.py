"""How many workers a backlog needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.insights.fleet.capacity import workers_needed


def test_the_seeds_example() -> None:
    """500 tasks at 50 a worker and hour."""
    assert workers_needed(500, 50.0) == {"for_1_hour": 10, "for_4_hours": 3, "for_8_hours": 2}


def test_no_backlog_needs_nobody_and_an_unknown_pace_tells_nothing() -> None:
    assert workers_needed(0, None) == {"for_1_hour": 0, "for_4_hours": 0, "for_8_hours": 0}
    assert workers_needed(7, None) == {"for_1_hour": None, "for_4_hours": None, "for_8_hours": None}


@given(st.integers(1, 10**7), st.floats(0.01, 10**6))
def test_so_many_are_enough_and_one_fewer_is_not(pending: int, pace: float) -> None:
    for (_, workers), hours in zip(workers_needed(pending, pace).items(), (1, 4, 8), strict=True):
        assert workers is not None
        assert workers * pace * hours == pytest.approx(pending, rel=1e-9) or workers * pace * hours > pending
        assert (workers - 1) * pace * hours < pending
