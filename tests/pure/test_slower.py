"""A role is slower if its runs are, not because those that are under way are the long ones among them."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator
from random import Random
from statistics import quantiles

import pytest

from celeriac.insights.fleet.slower import ENDED, FEW, LONG, SOON, LateRuns, slower_of

#: What half of the tasks take (seconds).
USUAL = 60.0


def looks(slots: int, spread: float, times: float = 1.0, n: int = 100) -> Iterator[tuple[LateRuns, float]]:
    """Look `n` times at a role with so many tasks always in flight, a median duration apart, long after it began; and
    at what nine of ten take. From the first look on tasks that begin take `times` as long.
    """
    random, now, slow = Random(f"{slots} {spread}"), 0.0, 1.0

    def draw() -> float:
        return USUAL * math.exp(spread * random.gauss(0, 1))

    usual = quantiles([draw() for _ in range(10_000)], n=10)[-1]
    flying = [(draw() * random.random(), 0.0) for _ in range(slots)]
    heapq.heapify(flying)
    ended: deque[tuple[float, float]] = deque(maxlen=ENDED)
    first = 30 * USUAL
    for look in range(n):
        while flying[0][0] <= first + look * USUAL:
            now, began = flying[0]
            ended.append((now, now - began))
            slow = times if now >= first else 1.0
            heapq.heapreplace(flying, (now + slow * draw(), now))
        now = first + look * USUAL
        yield LateRuns("work", [(now - at, took) for at, took in ended], [(now - one[1], 1) for one in flying]), usual


@pytest.mark.parametrize("spread", [0.2, 0.7, 1.5])
@pytest.mark.parametrize("slots", [10, 200, 1000])
def test_as_many_as_there_may_be_in_flight_a_healthy_role_is_not_slower(slots: int, spread: float) -> None:
    assert [found for runs, usual in looks(slots, spread) if (found := slower_of(runs, usual))] == []


@pytest.mark.parametrize("slots", [10, 200, 1000])
def test_once_all_take_five_times_as_long_it_is(slots: int) -> None:
    found = [slower_of(*look) for look in looks(slots, 0.2, times=5.0, n=40)]
    assert found[0] is None
    assert None not in found[12:]
    assert {round(one.now / USUAL) for one in found[20:] if one} <= {4, 5, 6}


def test_what_hangs_is_slow_without_an_end() -> None:
    before = [(400.0 + n, 0.1) for n in range(50)]
    hanging = LateRuns("work", before, [(390.0, 1)] * FEW)
    assert (found := slower_of(hanging, 0.1)) is not None
    assert found.under_way == FEW
    a_day_later = LateRuns("work", [(ago + LONG / 2, took) for ago, took in before], [(LONG / 2, 1)] * FEW)
    assert slower_of(a_day_later, 0.1) is not None


def test_a_few_that_have_hung_for_long_count_for_no_more_than_they_are() -> None:
    runs = LateRuns("work", [(10.0 * n, 0.1) for n in range(FEW)], [(50_000.0, 1)] * 15)
    assert slower_of(runs, 0.1) is None


def test_a_role_that_was_slow_and_has_nothing_to_do_is_not_slow() -> None:
    assert slower_of(LateRuns("work", [(SOON + n, 60.0) for n in range(50)], []), 0.1) is None


def test_a_ticket_under_way_has_its_age_shared_by_its_tasks() -> None:
    assert slower_of(LateRuns("work", [], [(50.0, 100)] * FEW), 0.1) is None
    assert slower_of(LateRuns("work", [], [(500.0, 100)] * FEW), 0.1) is not None
