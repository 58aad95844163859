"""Results of the doctor's checks, and their wording."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from celeriac.insights import Count

#: The most names in a line.
NAMES = 10

#: Seconds by which something may be late that happens each second or two.
LATE = 60.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem. `cure`: what to do, as a command or a statement if there is one."""

    text: str
    cure: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A check's result: the state of things, and the problems."""

    text: str
    troubles: list[Trouble] = field(default_factory=list)


def named(names: Any) -> str:
    some = sorted(names)
    return ", ".join(some[:NAMES]) + (f" and {len(some) - NAMES} more" if len(some) > NAMES else "")


def counted(some: Count, more: int) -> str:
    """Format the sum of waiting and held tasks: `5,012`, or `5,012+` if counting stopped."""
    return str(Count(some.n + more, some.exact))


def error_text(error: Exception) -> str:
    """Return the database's message, in a line."""
    return str(getattr(error, "orig", error)).partition("\n")[0]


def age(seconds: float | None) -> str:
    """Format an age, in a unit of which there are two or more: 40 s, 12 min, 5 h, 3 d."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
