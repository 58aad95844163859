"""Counts in buckets tell below how many seconds a share of them lies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celeriac.insights.history.histogram import BOUNDS, BUCKETS, counts, quantile

TOLD = st.lists(st.integers(0, 1000), min_size=BUCKETS, max_size=BUCKETS)


def test_none_of_nothing() -> None:
    assert quantile(counts([]), 0.5) is None


def test_within_a_bucket_they_lie_evenly() -> None:
    told = counts([(8, 4)])  # longer than 1 s, up to 2.5
    assert [quantile(told, share) for share in (0.0, 0.5, 1.0)] == [1.0, 1.75, 2.5]


def test_what_is_beyond_the_last_bound_counts_as_that() -> None:
    assert quantile(counts([(0, 1), (BUCKETS - 1, 99)]), 0.95) == BOUNDS[-1]


@given(TOLD, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_lies_below_no_less(told: list[int], one: float, other: float) -> None:
    low, high = (quantile(told, share) for share in sorted((one, other)))
    assert (low is None) == (high is None) == (not sum(told))
    assert low is None or high is None or 0 <= low <= high <= BOUNDS[-1]
