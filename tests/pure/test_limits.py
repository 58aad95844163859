"""Token buckets: whoever asks too often waits, and nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from celeriac.api import limits
from celeriac.api.limits import Buckets


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_let_through_and_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(rate=2, burst=3, clock=clock)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == 0.5
    assert buckets.take("b") == 0, "another key has a bucket of its own"
    clock.now += 0.5
    assert buckets.wait("a") == 0
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0


@given(st.floats(0.1, 100), st.floats(1, 100), st.lists(st.floats(0, 10), max_size=200))
def test_never_more_than_the_burst_and_the_rate_since(rate: float, burst: float, pauses: list[float]) -> None:
    clock = Clock()
    buckets = Buckets(rate, burst, clock)
    taken = 0
    for pause in pauses:
        clock.now += pause
        taken += buckets.take("a") == 0
        assert taken <= burst + (clock.now - 1_000) * rate + 1e-6


def test_callers_remembered_are_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(limits, "MOST", 10)
    clock = Clock()
    buckets = Buckets(rate=0.001, burst=5, clock=clock)
    for n in range(100):
        clock.now += 0.01
        buckets.take(str(n))
    assert len(buckets._levels) <= 11
    assert buckets.wait("99") == 0
