"""Prices and stock as menus tell them: what their columns could not hold does not keep the others from being stored."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from tasks.platforms import lowest, together

ABSURD = [math.nan, math.inf, "-Infinity", 1e9, 1e30, -1e30, "1e400"]


@pytest.mark.parametrize("absurd", ABSURD)
def test_a_number_that_no_shop_has_is_passed_over(absurd: Any) -> None:
    assert (lowest([absurd, 12.5, None, 9.99]), together([3, absurd, None, "4"])) == (Decimal("9.99"), 7)
    assert (lowest([absurd]), together([absurd])) == (None, None)


def test_what_the_columns_hold_is_told() -> None:
    assert (lowest(["99999998.99"]), together([999_999_999.5])) == (Decimal("99999998.99"), 999_999_999)
    assert (lowest([-1]), together([-2, 1])) == (None, 0)


def test_what_they_do_not_hold_together_is_not() -> None:
    assert (lowest(["99999999.996"]), together([6e8, 3e8]), together([6e8, 6e8])) == (None, 900_000_000, None)
