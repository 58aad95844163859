"""How many examples a property is tried with: `EXAMPLES`, as by night, or a hundred."""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("EXAMPLES", "100"))


def of_a_hundred(n: int) -> int:
    """So many where a property has a hundred, for one whose examples cost more, or less, than others'."""
    return max(1, n * EXAMPLES // 100)
