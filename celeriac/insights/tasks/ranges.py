"""Ranges, as filters say them: `50..` and above, `..10` and below, `50..70`, or one number; both ends belong to it."""

from __future__ import annotations

import re

from celeriac.errors import BadValue

#: What one looks like: up to seven digits each, as priorities have.
FORM = r"^(-?[0-9]{1,7}(\.\.(-?[0-9]{1,7})?)?|\.\.-?[0-9]{1,7})$"


def ends(name: str, value: str | None) -> tuple[int | None, int | None]:
    """The lowest and the highest of it, None where it is open, in whichever order they are given. Raises BadValue."""
    if value is None:
        return None, None
    if not re.fullmatch(FORM, value, re.ASCII) or "\n" in value:
        raise BadValue(f"{name}={value!r:.50}: give a range like 50.., ..10 or 50..70, or one whole number")
    first, _, last = value.partition("..")
    if ".." not in value:
        return int(first), int(first)
    low, high = (int(end) if end else None for end in (first, last))
    return (high, low) if low is not None and high is not None and low > high else (low, high)
