"""What a demo concludes from what it saw."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One condition: whether it holds, and the figures that show it."""

    holds: bool
    says: str
