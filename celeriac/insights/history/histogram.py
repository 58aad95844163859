"""How long tasks waited or ran, as counts in fixed buckets: what they add up to, and what lies below which share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

#: Upper bounds (seconds) of the buckets, each of which includes its bound; one more has what is longer. Rows and
#: counters hold counts by these: they change with a migration alone.
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    7200.0,
)  # fmt: skip

#: Counts of a histogram.
BUCKETS = len(BOUNDS) + 1


def counts(buckets: Iterable[tuple[int, int]]) -> list[int]:
    """Of buckets, numbered from 0, and how many each has."""
    numbers = [0] * BUCKETS
    for bucket, n in buckets:
        numbers[bucket] += n
    return numbers


def quantile(numbers: Sequence[int], share: float) -> float | None:
    """Below how many seconds that share of them lies, as Prometheus' `histogram_quantile` has it; None where none is.

    Within a bucket they are taken to lie evenly. What is beyond the last bound counts as that bound.
    """
    if not (whole := sum(numbers)):
        return None
    rank, below = share * whole, 0
    for n, upper, lower in zip(numbers, BOUNDS, (0.0, *BOUNDS), strict=False):
        if n and below + n >= rank:
            return lower + (upper - lower) * (rank - below) / n
        below += n
    return BOUNDS[-1]


def cumulative(numbers: Sequence[int]) -> list[int]:
    """For each bound, and for none, how many are at most so long."""
    return list(accumulate(numbers))
