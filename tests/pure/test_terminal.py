"""What others wrote is shown on a terminal to be read, not to be obeyed."""

from __future__ import annotations

import pytest

from celeriac.cli import output

EVIL = "a\x1b]0;title\x07\u202eb\x9bc\x7f"
SHOWN = r"a\x1b]0;title\x07\u202eb\x9bc\x7f"


@pytest.mark.parametrize(
    ("given", "shown"),
    [(EVIL, SHOWN), ("naïve ✓ 漢字 👩‍👧 \t", "naïve ✓ 漢字 👩‍👧 \t"), ("\ud83d", r"\ud83d"), ("a\nb", r"a\nb")],
)
def test_only_what_orders_turns_or_hides_is_escaped(given: str, shown: str) -> None:
    assert output.safe(given) == shown
