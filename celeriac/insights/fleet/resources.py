"""Reads what workers report of themselves; one in another language reports what it likes, and nothing here can fail."""

from __future__ import annotations

import sys
from typing import Any


def percent(reported: Any) -> float | None:
    """Return a share (percent) within bounds; None if what is reported is none."""
    if isinstance(reported, bool) or not isinstance(reported, int | float) or not abs(reported) <= sys.float_info.max:
        return None
    return round(float(min(max(reported, 0.0), 1000.0)), 1)


def number(name: str, resources: str = "resources") -> str:
    """Return the SQL expression of a number in `celeriac.workers.resources`; null where it is no number.

    It is rounded to six digits and bounded by ±10^12: JSON's numbers have no bounds, those of a double have.
    """
    value = f"CAST({resources} ->> '{name}' AS numeric)"
    return (
        f"CASE WHEN jsonb_typeof({resources} -> '{name}') = 'number' "
        f"THEN CAST(round(least(greatest({value}, -1e12), 1e12), 6) AS double precision) END"
    )


def is_true(name: str, resources: str = "resources") -> str:
    """Return the SQL condition that it is true there; anything but a boolean is not."""
    return f"coalesce({resources} -> '{name}' = 'true', false)"
