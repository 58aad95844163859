"""What the tests of a module use up together is made anew for a test that is run once more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.renewed import Renewed


def test_a_test_that_has_had_it_gets_another() -> None:
    life: list[str] = []

    @contextmanager
    def make() -> Iterator[int]:
        life.append("made")
        yield life.count("made")
        life.append("gone")

    shared = Renewed(make)
    assert life == []
    assert [shared.of(test) for test in ("one", "other", "other", "third", "one", "one")] == [1, 1, 2, 2, 2, 3]
    assert life == ["made", "gone"] * 2 + ["made"]
    shared.close()
    shared.close()
    assert life == ["made", "gone"] * 3
