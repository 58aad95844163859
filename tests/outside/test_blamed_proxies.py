"""Whose fault it is that a visit failed: a proxy rests for its own alone."""

from __future__ import annotations

import pytest

from tasks.chromium import BrowserEnded, PageFailed, PageIncomplete, PageRefused
from tasks.visits import (
    PreflightFailed,
    address_in,
    is_to_blame,
    what_is_wrong,
)


@pytest.mark.parametrize(
    ("error", "before", "after"),
    [
        (PageFailed("no answer"), True, True),
        (PageRefused("/", 429, None), True, True),
        (PageRefused("/", 404, None), True, False),
        (PageIncomplete("no menu"), True, False),
        (BrowserEnded("killed"), False, False),
    ],
)
def test_whose_fault_a_failure_is(error: Exception, before: bool, after: bool) -> None:
    assert [is_to_blame(error, passed, True) for passed in (False, True)] == [before, after]


def test_without_time_it_is_the_proxy_s_only_if_something_was_answered() -> None:
    told: list[Exception] = [PageFailed("Timeout"), PageIncomplete("late"), PageRefused("/", 502, None)]
    assert [is_to_blame(error, False, False) for error in told] == [False, False, True]
    assert is_to_blame(PreflightFailed("the outside sees 127.0.0.99"), False, False)


def test_an_address_is_compared_in_its_usual_form() -> None:
    assert address_in(" 2001:DB8:0::1\n") == "2001:db8::1"
    assert what_is_wrong("203.0.113.7", None, "203.0.113.8") is None
    assert what_is_wrong("203.0.113.7", "203.0.113.7", "203.0.113.8") is None
