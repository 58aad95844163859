"""How long redaction takes, of pairs of secrets and texts made to be slow: `python -m tests.pure.pairs 1000000`."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

from celeriac.store.redact import Secrets

#: What texts and secrets consist of: what is quoted, escaped, seen in several ways, or alike over and over.
UNITS = (
    "\\", "\\\\", "\\'", '"', "'", "%", "%25", "%5C", "%C3%B6", "&", "&amp;", "&#92;", "\\x5c", "\\u00f6", "\\ud83d",
    "\\u005c", "\\\\\\\\X", "ö", "ß", "ключ", "😀", "a", "ab", "aaaaaaaaaaab", "1", "12", "1,", "4-", "\n", " ", "\t",
    "=", "+", "/", "•",
)  # fmt: skip

#: Of each a pair has at most so many characters.
LONGEST = 4_096

#: A pair that took so many times the median of its length is measured again: something else may have had its turn.
AGAIN = 5


@dataclass(frozen=True)
class Slowest:
    """`times`: how many times the median of pairs of its length it took."""

    times: float
    secret: str
    text: str


def pairs(n: int, seed: int) -> Iterator[tuple[str, str]]:
    drawn = random.Random(seed)
    for _ in range(n):
        secret = _made(drawn, 2 ** drawn.randint(2, LONGEST.bit_length() - 1))
        yield secret, _text(drawn, secret, 2 ** drawn.randint(2, LONGEST.bit_length() - 1))


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


def seconds(secret: str, text: str) -> float:
    began = time.thread_time()
    Secrets([secret]).without(text)
    return time.thread_time() - began


def slowest(n: int, seed: int = 0) -> Slowest:
    took: dict[tuple[int, int], list[tuple[float, str, str]]] = defaultdict(list)
    for secret, text in pairs(n, seed):
        took[len(secret), len(text)].append((seconds(secret, text), secret, text))
    return max((one for those in took.values() for one in _judged(those)), key=lambda one: one.times)


def _judged(took: list[tuple[float, str, str]]) -> Iterator[Slowest]:
    usual = median(one for one, _, _ in took)
    for once, secret, text in took:
        least = once if once < AGAIN * usual else min(once, *(seconds(secret, text) for _ in range(5)))
        yield Slowest(least / usual, secret, text)


if __name__ == "__main__":
    worst = slowest(int(sys.argv[1]), random.SystemRandom().randrange(2**32))
    print(f"{worst.times:.1f} times the median of its length: {worst.secret[:80]!r} in {worst.text[:80]!r}")
