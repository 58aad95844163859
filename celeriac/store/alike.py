"""Reduce messages to their patterns, without what differs from task to task. Pure."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,})\b")
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")


def pattern_of(message: str) -> str:
    """Return the message without what differs from task to task."""
    for part, instead in ((_QUOTED, "''"), (_UUID, "#"), (_HEX, "#"), (_DIGITS, "#")):
        message = part.sub(instead, message)
    return " ".join(message.split())
