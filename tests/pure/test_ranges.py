"""Ranges of a filter: what one means, and that a pattern tells which there are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.errors import BadValue
from celeriac.insights.tasks.conditions import RANGE, ends

numbers = st.integers(-9_999_999, 9_999_999)


@pytest.mark.parametrize(
    ("given", "lowest", "highest"),
    [("50..", 50, None), ("..10", None, 10), ("50..70", 50, 70), ("7", 7, 7), ("-5..-1", -5, -1), ("70..50", 50, 70)],
)
def test_a_range_has_both_its_ends(given: str, lowest: int | None, highest: int | None) -> None:
    assert ends("priority", given) == (lowest, highest)


def test_where_none_is_given_there_is_none() -> None:
    assert ends("priority", None) == (None, None)


@given(st.one_of(st.text(max_size=12), st.text("0123456789.-\n\u0661", max_size=12)))
def test_what_the_pattern_does_not_match_is_refused_and_nothing_else(text: str) -> None:
    """Javascript and Rust read the pattern of the document as Python does."""
    if re.fullmatch(RANGE, text) and not text.endswith("\n"):
        assert ends("priority", text) != (None, None)
    else:
        with pytest.raises(BadValue, match="give a range like"):
            ends("priority", text)


@given(numbers, numbers)
def test_the_order_of_the_ends_does_not_matter(one: int, other: int) -> None:
    assert ends("priority", f"{one}..{other}") == (min(one, other), max(one, other))
