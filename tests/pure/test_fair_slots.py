"""What would be fair is what passes give: their whole slots lie within one of it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from celeriac.dispatch.fairness import Claimant, allocate
from celeriac.insights.fairness.shares import Claim, fair_slots

CLAIMS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0.5, 1.0, 2.0, 3.0])), min_size=1, max_size=8)


@given(CLAIMS, st.integers(0, 120))
def test_nobody_gets_more_than_it_wants_and_nothing_is_left_while_one_wants_more(
    claims: list[tuple[int, float]], slots: int
) -> None:
    fair = fair_slots([Claim(wants, weight) for wants, weight in claims], slots)
    assert all(got <= wants + 1e-9 for got, (wants, _) in zip(fair, claims, strict=True))
    assert math.isclose(sum(fair), min(slots, sum(wants for wants, _ in claims)), abs_tol=1e-6)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 120))
def test_a_pass_over_idle_slots_gives_it_in_whole_ones(waiting: list[int], slots: int) -> None:
    claimants = [Claimant(str(n), wants) for n, wants in enumerate(waiting)]
    given_ = allocate(claimants, slots)
    fair = fair_slots([Claim(wants) for wants in waiting], slots)
    assert [n for n, slots_ in enumerate(fair) if abs(given_.get(str(n), 0) - slots_) >= 1 + 1e-9] == []


def test_a_heavy_account_gets_as_much_more() -> None:
    assert fair_slots([Claim(math.inf), Claim(math.inf, 2.0), Claim(3)], 30) == [9.0, 18.0, 3.0]
