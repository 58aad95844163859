"""What the checks of the doctor find, and how it is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celeriac.insights import Count

#: Names in a line.
NAMES = 10

#: Seconds something that happens each second or two may be late.
LATE = 60.0

#: A worker silent for longer (seconds) is not counted among those that work.
SILENT = 120.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """`cure`: what to do, a command or a statement where there is one."""

    text: str
    cure: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check found: how things stand, and what is wrong."""

    text: str
    troubles: list[Trouble] = field(default_factory=list)


def named(names: Any) -> str:
    some = sorted(names)
    return ", ".join(some[:NAMES]) + (f" and {len(some) - NAMES} more" if len(some) > NAMES else "")


def counted(some: Count, more: int) -> str:
    """Of what waits and what is held: `5,012`, or `5,012+` where counting stopped."""
    return f"{some.n + more:,}{'' if some.exact else '+'}"


def error_text(error: Exception) -> str:
    """What the database said, in a line."""
    return str(getattr(error, "orig", error)).partition("\n")[0]


def age(seconds: float | None) -> str:
    """As people say it, from two of a unit on: 40 s, 12 min, 5 h, 3 d."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
