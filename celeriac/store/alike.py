"""Reduce messages to their patterns, without what differs from task to task. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: So many of a kind are named.
NAMED = 3

_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,})\b")
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")


def pattern_of(message: str) -> str:
    """Return the message without what differs from task to task."""
    for part, instead in ((_QUOTED, "''"), (_UUID, "#"), (_HEX, "#"), (_DIGITS, "#")):
        message = part.sub(instead, message)
    return " ".join(message.split())


def in_lines(reasons: Mapping[int, str]) -> list[str]:
    """Return a line for each kind of reason, the most frequent first: `3 (7, 8, 9): the task is running`."""
    kinds: dict[str, list[int]] = {}
    for one, reason in reasons.items():
        kinds.setdefault(pattern_of(reason), []).append(one)
    return [_in_a_line(ones, reasons[ones[0]]) for ones in sorted(kinds.values(), key=len, reverse=True)]


def _in_a_line(ones: Sequence[int], reason: str) -> str:
    if len(ones) == 1:
        return f"{ones[0]}: {reason}"
    named = ", ".join(map(str, ones[:NAMED]))
    return f"{len(ones):,} ({named}{', …' if len(ones) > NAMED else ''}): {reason}"
