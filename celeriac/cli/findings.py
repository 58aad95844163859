"""What the checks of `celeriac doctor` find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Names told in a line.
TOLD = 10

#: Seconds something that happens each second or two may be late.
LATE = 60.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """`cure`: what to do, a command or a statement where there is one."""

    says: str
    cure: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check found: how things stand, and what is wrong."""

    says: str
    troubles: list[Trouble] = field(default_factory=list)


def named(names: Any) -> str:
    some = sorted(names)
    return ", ".join(some[:TOLD]) + (f" and {len(some) - TOLD} more" if len(some) > TOLD else "")
