"""What waits is worked off at the difference of two rates, or never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.insights.fleet.capacity import LONGEST, POINTS, USUAL, drain

rates = st.floats(0.1, 1e5)


def test_what_comes_meanwhile_is_worked_off_as_well() -> None:
    found = drain(100, arrival=10, per_worker=5, workers=6, hours=10)
    assert (found.service, found.lasts, found.needed) == (30, 5.0, 4)
    assert found.points[0] == (0.0, 100)
    assert found.points[-1] == (10.0, 0.0)
    assert dict(found.points)[2.5] == 50.0


def test_where_more_comes_than_is_done_it_grows() -> None:
    found = drain(100, arrival=40, per_worker=5, workers=6)
    assert (found.lasts, found.needed) == (None, None)
    assert found.points[-1] == (USUAL, 180.0)
    assert drain(0, arrival=1, per_worker=1, workers=0).lasts == 0.0


@given(st.integers(1, 10**7), rates, rates, st.integers(0, 1000), st.floats(0.1, 1000))
def test_so_many_workers_as_are_needed_are_done_in_time(
    waiting: int, arrival: float, each: float, workers: int, hours: float
) -> None:
    needed = drain(waiting, arrival, each, workers, hours).needed
    assert needed is not None
    lasts = drain(waiting, arrival, each, needed).lasts
    assert lasts is not None
    assert lasts == pytest.approx(hours) or lasts < hours
    few = drain(waiting, arrival, each, needed - 1).lasts
    assert few is None or few == pytest.approx(hours) or few > hours


@given(st.integers(0, 10**7), rates, rates, st.integers(0, 1000))
def test_a_curve_is_never_below_nothing_nor_too_long(waiting: int, arrival: float, each: float, workers: int) -> None:
    points = drain(waiting, arrival, each, workers).points
    assert len(points) == POINTS + 1
    assert min(n for _, n in points) >= 0
    assert points[-1][0] <= LONGEST
