"""Ranges in filters: `50..` and above, `..10` and below, `50..70`, or one number; both ends are included."""

from __future__ import annotations

import re

from celeriac.errors import BadValue

#: The form of a range: up to seven digits at each end, as priorities have.
FORM = r"^(-?[0-9]{1,7}(\.\.(-?[0-9]{1,7})?)?|\.\.-?[0-9]{1,7})$"


def ends(name: str, value: str | None) -> tuple[int | None, int | None]:
    """Return the lowest and the highest number, in either order given; None for an open end. Raises BadValue."""
    if value is None:
        return None, None
    if not re.fullmatch(FORM, value, re.ASCII) or "\n" in value:
        raise BadValue(f"{name}={value!r:.50}: give a range like 50.., ..10 or 50..70, or one whole number")
    first, _, last = value.partition("..")
    if ".." not in value:
        return int(first), int(first)
    low, high = (int(end) if end else None for end in (first, last))
    return (high, low) if low is not None and high is not None and low > high else (low, high)
