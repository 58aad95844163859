"""Lengths of time in words."""

from __future__ import annotations

from itertools import pairwise

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def span(seconds: float) -> str:
    """Format seconds: 0.4 s, 58 s, 4 min 12 s, 2 h 5 min, 3 d 4 h; negative ones are 0.0 s."""
    if seconds < 9.5:
        return f"{max(seconds, 0.0):.1f} s" if seconds < 0.95 else f"{seconds:.0f} s"
    left = round(seconds)
    for (unit, length), (finer, part) in pairwise(_UNITS):
        if left >= length:
            rest = left % length // part
            return f"{left // length} {unit}" + (f" {rest} {finer}" if rest else "")
    return f"{left} s"
