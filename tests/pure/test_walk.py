"""A sweep's walk is bounded, goes on where it stopped, and begins anew at its end or after a failure."""

from __future__ import annotations

import pytest

from celeriac.repair.batch import Walk

END = 7


def batch(place: int) -> tuple[int, int | None]:
    """Two places a batch."""
    following = place + 2
    return min(2, END - place), following if following < END else None


def test_it_goes_on_where_it_stopped_and_begins_anew_at_the_end() -> None:
    walk = Walk(0, 3)
    assert [walk.sweep(batch) for _ in range(4)] == [6, 1, 6, 1]


def test_one_that_fails_begins_anew() -> None:
    walk = Walk(0, 3)
    walk.sweep(batch)

    def broken(place: int) -> tuple[int, int | None]:
        raise RuntimeError(str(place))

    with pytest.raises(RuntimeError, match="6"):
        walk.sweep(broken)
    assert walk.sweep(batch) == 6
