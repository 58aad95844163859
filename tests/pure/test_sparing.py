"""What is said again and again is said a few times a minute, and what was left out is counted: none is forgotten."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from celeriac.run import sparing
from celeriac.run.sparing import FEW, WITHIN, Sparing


def test_a_few_are_said_and_the_first_of_the_next_minute_says_how_many_were_not() -> None:
    spare = Sparing()
    said = [spare.admit("boom", n / 100) for n in range(417)]
    assert said == [0] * FEW + [None] * (417 - FEW)
    assert spare.admit("another", 5.0) == 0
    assert spare.admit("boom", WITHIN) == 417 - FEW
    assert spare.admit("boom", WITHIN + 1) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=200))
def test_what_is_said_and_what_is_left_out_is_all_there_was(happened: list[tuple[str, float]]) -> None:
    spare, now = Sparing(), list(accumulate(wait for _, wait in happened))
    told = {"a": 0, "b": 0}
    for (what, _), at in zip(happened, now, strict=True):
        n = spare.admit(what, at)
        told[what] += 0 if n is None else 1 + n
    end = (now or [0.0])[-1] + WITHIN
    for what, n_told in told.items():
        last = spare.admit(what, end)
        assert last is not None
        assert n_told + last == sum(one == what for one, _ in happened)


def test_it_does_not_grow_with_what_differs_each_time() -> None:
    spare = Sparing()
    for n in range(3 * sparing.KEYS):
        assert spare.admit(n, 0.0) == 0
    assert len(spare._said) <= sparing.KEYS
