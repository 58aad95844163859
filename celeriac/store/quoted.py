"""What an error says, within a sentence of the engine: « and » are around it, and around nothing else. Pure.

An alert, the doctor and a schedule that cannot run quote errors; a viewer who may not see those gets the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: The most characters of an error that a sentence quotes.
MOST = 200

_QUOTED = re.compile("«([^«»]*)»")
_OTHERS = str.maketrans("«»", "‹›")


def quoted(error: str, most: int = MOST) -> str:
    """Return the beginning of the error's text, marked."""
    return f"«{error[:most].translate(_OTHERS)}»"


def is_marked(sentence: str) -> bool:
    """Return whether the sentence quotes something."""
    return _QUOTED.search(sentence) is not None


def marked(error: str) -> str:
    """Return the error's text, quoted if it is not yet, as in a row from before quotes were marked."""
    return error if is_marked(error) else quoted(error)


def with_quotes(sentence: str, seen: Callable[[str], str]) -> str:
    """Return the sentence with what `seen` makes of each quote."""
    return _QUOTED.sub(lambda quote: f"«{seen(quote[1])}»", sentence) if "«" in sentence else sentence
