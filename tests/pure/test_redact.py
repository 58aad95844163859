"""Secrets are found however they stand in a text, whatever they consist of, in time linear in both."""

from __future__ import annotations

import base64
import html
import json
import random
import string
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.store.pieces import PIECE
from celeriac.store.redact import HIDDEN, MANY, MARGIN, MOST_SECRET, MOST_TEXT, Secrets, without
from celeriac.store.spellings import SHORTEST
from tests.pure import pairs

Way = Callable[[str], str]

#: Runs of what is quoted and escaped, beside whatever else there is.
UNITS = st.sampled_from([unit for unit in pairs.UNITS if unit != "•"]) | st.text(
    st.characters(exclude_characters="•", exclude_categories=["Cs"]), max_size=4
)
RUNS = st.tuples(UNITS, st.integers(1, 30)).map(lambda run: run[0] * run[1])
TEXTS = st.lists(RUNS, max_size=6).map("".join)
SECRETS = TEXTS.filter(lambda text: len(text.strip()) >= SHORTEST)

WAYS = st.lists(st.sampled_from([repr, json.dumps, ascii, quote, quote_plus, html.escape]), max_size=2)


def pieces(secret: str) -> Iterator[str]:
    """What gives it away."""
    whole = secret.strip()
    for at in range(max(len(whole) - PIECE, 0) + 1):
        if not whole[at : at + PIECE].isspace():
            yield whole[at : at + PIECE]


def hidden(secret: object, text: str) -> str:
    return Secrets([secret]).without(text)


@given(secret=SECRETS, before=TEXTS, after=TEXTS)
def test_no_piece_of_a_secret_is_left_whatever_stands_beside_it(secret: str, before: str, after: str) -> None:
    for text in (before + secret + after, before + secret.strip() + after):
        shown = hidden(secret, text)
        assert HIDDEN in shown
        assert not [piece for piece in pieces(secret) if piece in shown]


@given(secret=SECRETS, at=st.integers(0, 100), size=st.integers(PIECE, 100))
def test_a_piece_of_twelve_characters_is_the_secret(secret: str, at: int, size: int) -> None:
    shown = hidden(secret, f"it was {secret.strip()[at : at + size]}…")
    assert not [piece for piece in pieces(secret) if piece in shown]


@given(secret=SECRETS, ways=WAYS)
def test_a_secret_is_found_however_it_is_quoted_and_escaped(secret: str, ways: list[Way]) -> None:
    told = secret.strip()
    for way in ways:
        told = way(told)
    shown = hidden(secret, f"it is {told} !")
    assert HIDDEN in shown
    assert told not in shown


@given(text=st.text("0123456789 ,.-\\'\"%&\n", max_size=200), secret=st.text("abcxyz", min_size=4, max_size=40))
def test_what_is_no_secret_stays(text: str, secret: str) -> None:
    assert hidden(secret, text) == text


@given(secret=SECRETS, before=st.integers(0, 20), most=st.integers(20, 60))
def test_a_text_is_cut_once_its_secrets_are_hidden(secret: str, before: int, most: int) -> None:
    """No beginning of one is left at the end, however short."""
    text = "~" * (most - before) + secret.strip() + "~" * 2 * MARGIN
    shown = Secrets([secret]).without(text, most)
    assert len(shown) <= most + len(HIDDEN)
    assert {*shown} <= {*"~•\\'\""}  # quotes before it are none of it


def test_threads_search_with_the_same_secrets() -> None:
    """A handler's threads write to one log, and each line is searched: what is worked out is there for each of them."""
    words = [f"{n}-secret words {n * 7919}" for n in range(40)]
    lines = [
        line for word in words for line in (word, quote(word), f"{word[:9]}...", word.encode().hex(), f"no {word}")
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            secrets = Secrets(words)
            with ThreadPoolExecutor(4) as threads:
                shown = [*threads.map(secrets.without, lines)]
            assert not [line for line, hidden in zip(lines, shown, strict=True) if HIDDEN not in hidden]
    finally:
        sys.setswitchinterval(before)


def test_what_is_too_long_to_be_searched_is_hidden_as_a_whole() -> None:
    assert hidden("x" * MOST_SECRET, "some xxxx text") == "some xxxx text"
    assert hidden("x" * (MOST_SECRET + 1), "some text") == HIDDEN
    assert without(Secrets(["ab" * MOST_SECRET]), {"said": ["text", "", 7]}) == {HIDDEN: [HIDDEN, "", HIDDEN]}
    assert hidden("secret", "~" * (MOST_TEXT + 1)) == HIDDEN
    assert without(Secrets(["secret"]), ["~" * (MOST_TEXT // 2), "~" * (MOST_TEXT // 2), 7]) == [HIDDEN, HIDDEN, HIDDEN]
    many = Secrets([f"{n:04}" for n in range(MANY + 1)])
    assert many.without("~" * (MOST_TEXT // 8)) == "~" * (MOST_TEXT // 8)
    assert many.without("~" * (MOST_TEXT // 8 + 1)) == HIDDEN


def test_keys_that_are_hidden_alike_are_numbered() -> None:
    values = {"hunter22": 1, "a hunter22": 2, "hunter2222": 3, "a hunter2222": 4}
    shown = without(Secrets(["hunter22", "hunter2222"]), values)
    assert shown == {HIDDEN: 1, f"a {HIDDEN}": 2, f"{HIDDEN} 2": 3, f"a {HIDDEN} 2": 4}


@pytest.mark.parametrize("cut", ["...", "…", " ... (700 characters truncated) ... ", " [...] ", "'...'"])
def test_what_a_cut_leaves_of_a_secret_is_hidden(cut: str) -> None:
    """From four characters on, before and after the cut, in any spelling; so is what ends or begins a text."""
    secret = "correct-Horse/9081 stale"
    for way in (str, repr, quote, lambda s: base64.b64encode(s.encode()).decode(), lambda s: s.encode().hex()):
        told = way(secret).strip("'")
        for size in range(SHORTEST, PIECE):
            shown = hidden(secret, f"input: {told[:size]}{cut}{told[-size:]}}}")
            assert (told[:size] in shown, told[-size:] in shown) == (False, False), shown
            if way in (str, repr):
                assert hidden(secret, f"it was {told[:size]}") == "it was •••"
                assert hidden(secret, f"{told[-size:]} was it") == "••• was it"
    assert without(Secrets([secret]), ["corr", "corr...", 9081, "no corr"]) == ["corr", "•••...", 9081, "no •••"]


#: Signs that the search puts between texts, as a barcode has them, and escaped; the last of each is none of them.
SIGNS = [("\x1d", "\x1e", "\x1f", "\x1c"), ("%1d", "%1E", "%1f", "%1c"), ("&#29;", "&#30;", "&#31;", "&#28;"),
         ("\\x1d", "\\u001e", "\\037", "\\x1c")]  # fmt: skip
PARTS_OF_TEXTS = st.sampled_from(
    [
        *(sign for some in SIGNS for sign in some),
        "tok ",
        "super",
        "secr\x1detpass",
        "phrase",
        "secr%1Eetpass",
        "...",
        "7",
    ]
)


@given(
    texts=st.lists(st.lists(PARTS_OF_TEXTS, min_size=1, max_size=6).map("".join), min_size=1, max_size=5),
    secret=st.sampled_from(["supersecretpassphrase", "supersecr\x1detpassphrase", "'\x1e\x1f'"]),
    is_numbered=st.booleans(),
)
def test_a_text_may_have_the_signs_that_stand_between_texts(texts: list[str], secret: str, is_numbered: bool) -> None:
    """It is searched, and shown, as with any other sign in their places."""

    def alike(value: str) -> str:
        for *signs, other in SIGNS:
            for sign in signs:
                value = value.replace(sign, other)
        return value

    number = [7] if is_numbered else []
    shown = without(Secrets([secret]), [*texts, *number])
    assert [*map(alike, map(str, shown))] == without(Secrets([alike(secret)]), [*map(alike, texts), *map(str, number)])
    assert alike(hidden(secret, texts[0])) == hidden(alike(secret), alike(texts[0]))


@pytest.mark.parametrize("sign", [sign for *signs, _ in SIGNS for sign in signs])
def test_edges_of_secrets_are_hidden_behind_such_a_sign(sign: str) -> None:
    texts = [f"01{sign}17", "tok supersecr", "phrase was it", "su%70ersec... was", "rase"]
    shown = [f"01{sign}17", "tok •••", "••• was it", "•••... was", "rase"]
    assert without(Secrets(["supersecretpassphrase"]), [*texts, 7]) == [*shown, 7]
    assert hidden("supersecretpassphrase", f"01{sign}17 tok supersecr") == f"01{sign}17 tok •••"


def test_a_secret_of_a_value_costs_what_its_texts_cost_together() -> None:
    """Not so much for each of them."""
    secret = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=8_000))
    values: list[Any] = [[*range(16_000)], ["item"] * 16_000, {f"key {n}": "x" for n in range(8_000)}]
    for value in values:
        began = time.thread_time()
        assert without(Secrets([secret]), value) == value
        together = time.thread_time() - began
        began = time.thread_time()
        hidden(secret, json.dumps(value))
        assert together < 20 * (time.thread_time() - began)


def test_a_number_and_a_key_of_a_result_are_texts_as_well() -> None:
    values = Secrets([471_100, "hunter22"])
    shown = {"n": [HIDDEN, HIDDEN, 7, True, None], HIDDEN: "•••"}
    assert without(values, {"n": [471_100, 471_100.0, 7, True, None], "hunter22": "hunter22"}) == shown


def test_the_slowest_pair_takes_about_as_long_as_others_of_its_length() -> None:
    worst = pairs.slowest(800)
    assert worst.times <= 20, worst


def test_what_went_back_without_end_is_linear() -> None:
    """Each of these took longer than anybody waits, or memory without bounds."""
    for secret, text in (
        ("\\" * 8 + "X", "\\" * 60), ("\\" * 4_000 + "X", "\\" * 200_000), ("ключ" * 2_000, "ключ\\" * 20_000),
        ("a" * 8_000, "a" * 200_000), ("'\"" * 4_000, "\"'" * 100_000), ("%25" * 2_000, "%25" * 50_000),
    ):  # fmt: skip
        assert set(hidden(secret, text)) <= {*"•\\"}
