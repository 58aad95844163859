"""Values come back from a row as they were, or are refused: none is stored that no worker could read."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps

from celeriac.store.encoding import DEEPEST, TooLarge, Unfit, encoded, json_text, revived

NO_LIMIT = float("inf")


def stored(value: Any) -> Any:
    """As a JSONB column gives it back."""
    return json.loads(json.dumps(encoded(value, NO_LIMIT), allow_nan=False))


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
RICH = (
    PLAIN | st.uuids() | st.dates() | st.times() | st.datetimes() | st.datetimes(timezones=st.just(UTC))
    | st.decimals(allow_nan=False) | st.binary(max_size=8).filter(lambda b: b"\x00" not in b)
)  # fmt: skip
NESTED = st.recursive(RICH, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


@given(NESTED)
def test_what_is_accepted_comes_back_as_it_was(value: Any) -> None:
    assert revived(stored(value)) == value


@given(NESTED)
def test_it_is_written_as_kombu_writes_it(value: Any) -> None:
    assert json_text(value) == dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 3, 1, 12, 30, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 3, 1), date(2026, 3, 1),
        time(12, 30), UUID(int=7), Decimal("1.10"), b"bytes", b"\xff\xfe",
    ],
    ids=repr,
)  # fmt: skip
def test_dates_and_the_like_come_back_with_their_type(value: Any) -> None:
    back = revived(stored({"deep": [value]}))["deep"][0]
    assert (back, type(back)) == (value, type(value))


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -math.inf, "NUL \x00", {"NUL \x00": 1}, b"\x00", "\ud83d", {"\ud83d": 1}, "half \udc00",
        object(), {1, 2}, lambda: None, pytest.param(10**5000, id="5000 digits"), {(1, 2): 3},
    ],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"deep": [v]}], ids=["bare", "deep"])
def test_what_postgres_json_cannot_hold_is_refused(value: Any, wrap: Any) -> None:
    with pytest.raises(Unfit):
        encoded(wrap(value), NO_LIMIT)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "\\\\\\u0000", "u0000", "\\"])
def test_text_that_only_speaks_of_nul_is_accepted(text: str) -> None:
    assert stored([text]) == [text]


@pytest.mark.parametrize("text", ["\\\x00", "\\\\\x00", "\x00\x00", "a\x00u0000"])
def test_nul_behind_backslashes_is_still_nul(text: str) -> None:
    with pytest.raises(Unfit, match="NUL"):
        encoded([text], NO_LIMIT)


@pytest.mark.parametrize(
    "forged",
    [
        {"__type__": "no such", "__value__": 1}, {"__type__": "uuid", "__value__": "x"},
        {"__type__": "uuid", "__value__": {"hex": "x"}}, {"__type__": "decimal", "__value__": "x"},
        {"__type__": "datetime", "__value__": 1}, {"__type__": "bytes", "__value__": 1},
        {"__type__": [], "__value__": 1},
    ],
    ids=lambda forged: str(forged["__type__"]),
)  # fmt: skip
def test_what_no_worker_could_read_back_is_refused(forged: dict[str, Any]) -> None:
    with pytest.raises(Unfit, match="kombu's notation"):
        encoded({"deep": [forged]}, NO_LIMIT)


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"x": value}
    return value


def test_nesting_is_bounded_far_below_what_ends_a_worker() -> None:
    assert revived(stored(nested(DEEPEST))) == nested(DEEPEST)
    with pytest.raises(Unfit, match="levels deep"):
        encoded(nested(DEEPEST + 1), NO_LIMIT)
    with pytest.raises(Unfit, match="JSON"):
        encoded(nested(100_000), NO_LIMIT)
    assert len(stored([[i] for i in range(5000)])) == 5000


def test_a_circle_is_named_and_what_is_there_twice_is_none() -> None:
    twice: list[Any] = [1]
    assert stored([twice, {"again": twice}]) == [[1], {"again": [1]}]
    twice.append({"again": twice})
    with pytest.raises(Unfit, match="Circular reference"):
        encoded(twice, NO_LIMIT)


@pytest.mark.parametrize(("text", "size"), [("x" * 98, 100), ("é" * 49, 100), ("€" * 32, 98), ("\n" * 49, 100)])
def test_size_is_what_is_stored_in_bytes_and_the_limit_itself_is_fine(text: str, size: int) -> None:
    assert encoded(text, size) == text
    with pytest.raises(TooLarge, match=f"^{size} bytes, the limit is {size - 1}$"):
        encoded(text, size - 1)
