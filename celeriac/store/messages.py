"""Messages of errors: reduce them to patterns, count them by kind, quote them in sentences of the engine. Pure.

An alert, the doctor and a schedule that cannot run quote errors between « and », which stand around nothing else; a
viewer who may not see errors gets the rest of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

#: Maximum number of things of a kind that a line names.
NAMED = 3

_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,})\b")
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")

#: The most characters of an error that a sentence quotes.
MOST = 200

_MARKED = re.compile("«([^«»]*)»")
_OTHERS = str.maketrans("«»", "‹›")


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


def quoted(error: str, most: int = MOST) -> str:
    """Return the beginning of the error's text, marked."""
    return f"«{error[:most].translate(_OTHERS)}»"


def is_marked(sentence: str) -> bool:
    """Return whether the sentence quotes something."""
    return _MARKED.search(sentence) is not None


def marked(error: str) -> str:
    """Return the error's text, quoted if it is not yet, as in a row from before quotes were marked."""
    return error if is_marked(error) else quoted(error)


def with_quotes(sentence: str, seen: Callable[[str], str]) -> str:
    """Return the sentence with what `seen` makes of each quote."""
    return _MARKED.sub(lambda quote: f"«{seen(quote[1])}»", sentence) if "«" in sentence else sentence
