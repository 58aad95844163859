"""What a process counts while it works: nothing without a port, and a child's counts reach its parent once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from celeriac.counters import BOUNDS, Counters
from celeriac.metrics.catalogue import METRICS
from celeriac.worker.request import became


def in_child(act: Callable[[], Any]) -> Any:
    """What a forked process gives."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(write, pickle.dumps(act()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        found = pickle.load(answer)
    os.waitpid(child, 0)
    return found


@pytest.fixture
def counters() -> Counters:
    counters = Counters()
    counters.turn(on=True)
    return counters


def test_nothing_is_counted_where_nobody_asks() -> None:
    counters = Counters()
    counters.count(1, "kicks")
    counters.took(1.0, "pass")
    with counters.timing("pass"):
        pass
    assert (counters.total("kicks"), counters.times("pass")) == (0, ([0] * (len(BOUNDS) + 1), 0.0))


def test_a_length_is_in_the_bucket_whose_bound_it_does_not_exceed(counters: Counters) -> None:
    for seconds in (0.0, BOUNDS[0], BOUNDS[1], 2 * BOUNDS[-1]):
        counters.took(seconds, "pass", "work")
    counts, total = counters.times("pass", "work")
    assert (counts[0], counts[1], counts[-1], sum(counts)) == (2, 1, 1, 4)
    assert total == pytest.approx(BOUNDS[0] + BOUNDS[1] + 2 * BOUNDS[-1])
    assert sum(counters.times("pass", "other")[0]) == 0


def test_what_raises_took_its_time_as_well(counters: Counters) -> None:
    with pytest.raises(ValueError, match="refused"), counters.timing("sql", "settle"):
        raise ValueError("refused")
    assert sum(counters.times("sql", "settle")[0]) == 1


def test_a_child_hands_over_what_it_has_counted_since_and_its_parent_nothing(counters: Counters) -> None:
    counters.count(5, "rows", "work")

    def counted() -> list[Any]:
        counters.count(2, "rows", "work")
        counters.took(0.003, "pass", "work")
        return [counters.taken(), counters.taken()]

    first, second = in_child(counted)
    assert second == {}
    assert counters.taken() == {}, "its own stays"
    counters.add(first["counted"])
    assert counters.total("rows", "work") == 7
    assert counters.times("pass", "work") == ([0, 0, 0, 1, *[0] * (len(BOUNDS) - 3)], 0.003)


@pytest.mark.parametrize(
    ("done", "result"),
    [({"ran": 3}, "won"), ({"ran": 9, "lost": 1}, "partly"), ({"ran": 9, "lost": 3}, "lost"),
     ({"handed_back": 0}, "handed_back"), (None, "broken")],
)  # fmt: skip
def test_a_ticket_comes_to_one_of_the_results_that_are_told(done: dict[str, Any] | None, result: str) -> None:
    """`ran` has what its process went on with as well."""
    (told,) = [metric for metric in METRICS if metric.name == "tickets_total"]
    assert became(done, 3) == result
    assert result in told.values
