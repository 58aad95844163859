"""What the demos say at the end."""

from __future__ import annotations

from demo.screen import tally


def test_every_demo_that_does_not_hold_is_named() -> None:
    assert tally("abcd", "") == "4 of 4 demos hold"
    assert tally("abcd", ["b", "d"]) == "2 of 4 demos hold; not: b, d"
