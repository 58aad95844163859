"""Histograms of how long tasks waited or ran, as counts in fixed buckets; their sums and quantiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Upper bounds (seconds) of the buckets, each of which includes its bound; one more bucket counts longer times. Stored
#: rows and counters use these buckets, so they only change with a migration.
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
    7200.0,
)  # fmt: skip

#: Number of counts in a histogram.
BUCKETS = len(BOUNDS) + 1


def counts(buckets: Iterable[tuple[int, int]]) -> list[int]:
    """Return all counts of a histogram, given pairs of a bucket's number (from 0) and count."""
    numbers = [0] * BUCKETS
    for bucket, n in buckets:
        numbers[bucket] += n
    return numbers


def quantile(numbers: Sequence[int], share: float) -> float | None:
    """Return the seconds below which that share of the values is, as Prometheus' `histogram_quantile` does; None for an
    empty histogram.

    Values are assumed to be spread evenly within a bucket. Values beyond the last bound count as that bound.
    """
    if not (whole := sum(numbers)):
        return None
    rank, below = share * whole, 0
    for n, upper, lower in zip(numbers, BOUNDS, (0.0, *BOUNDS), strict=False):
        if n and below + n >= rank:
            return lower + (upper - lower) * (rank - below) / n
        below += n
    return BOUNDS[-1]
