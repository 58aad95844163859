"""How long redaction takes, of pairs of secrets and texts made to be slow: `python -m tests.pure.pairs 1000000`.

It takes half an hour of a processor. `… 500000 0` and `… 500000 500000` are the two halves of it: the second number is
that of the first pair, and each pair depends on its number alone. Every other pair's text is cut into many short ones,
as a JSON value has them.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any
from urllib.parse import quote

from celeriac.store.redact import Secrets, without
from celeriac.store.spellings import SHORTEST

#: What texts and secrets consist of: what is quoted, escaped, seen in several ways, or alike over and over.
UNITS = (
    "\\", "\\\\", "\\'", '"', "'", "%", "%25", "%5C", "%C3%B6", "&", "&amp;", "&#92;", "\\x5c", "\\u00f6", "\\ud83d",
    "\\u005c", "\\\\\\\\X", "ö", "ß", "ключ", "😀", "a", "ab", "aaaaaaaaaaab", "1", "12", "1,", "4-", "\n", " ", "\t",
    "=", "+", "/", "•",
)  # fmt: skip

#: Lengths of secrets and texts, in characters. One is drawn half as often as a quarter of it: what a pair costs grows
#: with its length, and many short pairs are worth more than a few long ones.
LENGTHS = tuple(2**n for n in range(3, 13))
WEIGHTS = tuple(length**-0.5 for length in LENGTHS)

#: A pair that took so many times the median of its length is measured again: something else may have had its turn.
AGAIN = 5


@dataclass(frozen=True)
class Slowest:
    """`times`: how many times the median of pairs of its length it took."""

    times: float
    number: int


def pair(number: int) -> tuple[str, str]:
    drawn = random.Random(number)
    of_secret, of_text = drawn.choices(LENGTHS, WEIGHTS, k=2)
    while len((secret := _made(drawn, of_secret)).strip()) < SHORTEST:
        pass  # no secret: it costs nothing, and makes others look slow
    return secret, _text(drawn, secret, of_text)


def _made(drawn: random.Random, length: int) -> str:
    """Alike over and over, with some that differ; or all drawn."""
    units = drawn.sample(UNITS, drawn.randint(1, 3))
    text = "".join(drawn.choice(units) for _ in range(length)) if drawn.random() < 0.5 else units[0] * length
    for _ in range(drawn.randint(0, 3)):
        at = drawn.randrange(length)
        text = text[:at] + drawn.choice((*UNITS, "X", f"{drawn.getrandbits(64):x}")) + text[at:]
    return text[:length]


def _text(drawn: random.Random, secret: str, length: int) -> str:
    """Something of its own, the secret, or pieces of it, as it stands or encoded."""
    how = drawn.choice((str, repr, json.dumps, quote, lambda text: quote(quote(text)), lambda text: repr(repr(text))))
    at = drawn.randrange(len(secret))
    kinds = (_made(drawn, length), secret, secret[at : at + drawn.randint(1, 40)])
    text = ""
    while len(text) < length:
        text += how(drawn.choice(kinds) or "x")
    return text[:length]


def value_of(number: int, text: str) -> str | list[str | int]:
    """Return the text; or a list of short ones, and of numbers, that are as long as it together."""
    if number % 2:
        return text
    size = random.Random(-number).choice((1, 2, 3, 8, 40))
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return [int(part) if part.isascii() and part.isdigit() else part for part in parts]


def seconds(secret: str, value: Any) -> float:
    began = time.thread_time()
    without(Secrets([secret]), value)
    return time.thread_time() - began


def slowest(n: int, first: int = 0) -> Slowest:
    took: dict[tuple[int, int, int], list[tuple[float, int]]] = defaultdict(list)
    for number in range(first, first + n):
        secret, text = pair(number)
        value = value_of(number, text)
        took[len(secret), len(text), number % 2].append((seconds(secret, value), number))
    return max((one for those in took.values() for one in _judged(those)), key=lambda one: one.times)


def _judged(took: list[tuple[float, int]]) -> Iterator[Slowest]:
    usual = median(once for once, _ in took)
    for once, number in took:
        least = once if once < AGAIN * usual else min(once, *(_again(number) for _ in range(5)))
        yield Slowest(least / usual, number)


def _again(number: int) -> float:
    secret, text = pair(number)
    return seconds(secret, value_of(number, text))


if __name__ == "__main__":
    worst = slowest(*map(int, sys.argv[1:]))
    secret, text = pair(worst.number)
    print(f"{worst.times:.1f} times the median of its length, pair {worst.number}: {secret[:80]!r} in {text[:80]!r}")
