"""A message of plain Celery's that is malformed is a dead letter that can be stored, whatever is in it."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celeriac.enqueue.adopted import Letter
from celeriac.enqueue.foreign import MOST_BYTES
from celeriac.enqueue.rows import NewTask
from tests.examples import of_a_hundred
from tests.pure.test_foreign import ID, Plain, adopted, judged, refused

MESSAGE = json.loads(Plain().sent(task_id=ID))
ARGUMENTS: list[Any] = [[1], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


def with_body(body: Any, **headers: Any) -> dict[str, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    changed = MESSAGE | {"body": base64.b64encode(text).decode()}
    return changed | {"headers": MESSAGE["headers"] | headers}


def with_header(**headers: Any) -> dict[str, Any]:
    return MESSAGE | {"headers": MESSAGE["headers"] | headers}


def with_property(**properties: Any) -> dict[str, Any]:
    return MESSAGE | {"properties": MESSAGE["properties"] | properties}


GZIP = {"compression": "application/x-gzip"}

MALFORMED: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"hello",
    "no UTF-8": b"\xff\xfe\x00",
    "half of one": json.dumps(MESSAGE).encode()[:-20],
    "a pickle": pickle.dumps(MESSAGE),
    "deep": b"[" * 100_000,
    "too large": json.dumps(MESSAGE).encode() + b" " * MOST_BYTES,
    "a number of 5,000 digits": json.dumps(MESSAGE).encode().replace(b'"retries": 0', b'"retries": ' + b"9" * 5000),
    **{f"the JSON {value!r}": json.dumps(value).encode() for value in (None, 7, "text", [], {}, [MESSAGE])},
    **{f"{part} {value!r}": MESSAGE | {part: value}
       for part in ("headers", "properties", "body", "content-type", "content-encoding")
       for value in (None, 7, [], "x")},
    **{f"body {body!r}": with_body(body)
       for body in (None, 7, [], {}, [1, 2, 3], [[], [], []], [{}, {}, {}], [[], {}], [[], {}, {}, 1])},
    "a deep body": with_body(b"[" * 50_000),
    "a body that is no UTF-8": with_body(b"\xff\xfe[]"),
    "protocol 1 and 2 at once": with_body({"task": "add", "id": ID, "args": [1], "kwargs": {}}),
    "a forged date": with_body([[{"__type__": "datetime", "__value__": "x"}], {}, {}]),
    "a forged decimal": with_body([[{"__type__": "decimal", "__value__": "x"}], {}, {}]),
    "NaN": with_body(b'[[NaN], {}, {}]'),
    "a NUL": with_body([["\x00"], {}, {}]),
    "a half of a pair": with_body([["\ud83d"], {}, {}]),
    "deep arguments": with_body(b"[" + b"[" * 500 + b"]" * 500 + b", {}, {}]"),
    "a bomb": with_body(zlib.compress(b" " * 50_000_000, 9), **GZIP),
    "a cut off gzip": with_body(zlib.compress(json.dumps(ARGUMENTS).encode())[:-5], **GZIP),
    "a gzip that is none": with_body(ARGUMENTS, **GZIP),
    **{f"task {value!r}": with_header(task=value) for value in (None, "", 7, [], "a\x00", "x" * 201, "\ud83d")},
    **{f"id {value!r}": with_header(id=value) for value in (None, "", 7, [], "a\x00", "x" * 201, "\ud83d")},
    **{f"{time} {value!r}": with_header(**{time: value})
       for time in ("eta", "expires") for value in (7, [], "soon", "2030-13-01", True)},
    **{f"timelimit {value!r}": with_header(timelimit=value)
       for value in (7, [7], [None, "x"], [None, -1], [None, 1e300], [True, None])},
    **{f"retries {value!r}": with_header(retries=value) for value in ("x", -1, 2**31, True, 1.5)},
    **{f"priority {value!r}": with_property(priority=value) for value in ("x", 1.5, True, [])},
    **{f"compression {value!r}": with_header(compression=value) for value in ("", 7, [], {}, "x")},
    "no base64": MESSAGE | {"body": "%%%"},
}  # fmt: skip


@pytest.mark.parametrize("message", MALFORMED.values(), ids=[f"message {n}" for n in range(len(MALFORMED))])
def test_what_is_malformed_is_a_dead_letter_that_can_be_stored(message: Any) -> None:
    row = refused(message).row()
    for field in ("name", "task_id", "sender", "reason"):
        assert "\x00" not in (row[field] or "")
        (row[field] or "").encode()
    assert len(row["reason"]) <= 1000
    for field in ("args", "kwargs"):
        assert "\\u0000" not in (row[field] or "")


def test_it_would_be_a_task_were_it_not_malformed() -> None:
    assert adopted(MESSAGE).arguments[1] == adopted(with_body(ARGUMENTS)).arguments[1] == {"a": 1}
    assert adopted(with_body(zlib.compress(json.dumps(ARGUMENTS).encode()), **GZIP)).arguments[1] == {"a": 1}


def test_of_a_message_that_is_very_large_the_beginning_is_kept() -> None:
    row = Letter(b"x" * (2**24 + 1), "too large").row()
    assert (row["size"], len(row["message"])) == (2**24 + 1, 2**16)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from([*MESSAGE["headers"], "compression"])


@given(st.dictionaries(fields, json_values, max_size=4), json_values)
@settings(max_examples=of_a_hundred(200))
def test_whatever_a_field_holds_it_is_a_task_or_a_letter(headers: dict[str, Any], body: Any) -> None:
    for message in (
        with_header(**headers), with_body([body, {}, {}]), with_body([[body], {"b": body}, {}], **headers)
    ):  # fmt: skip
        assert isinstance(judged(message), NewTask | Letter)


@given(st.binary(max_size=200))
def test_noise_is_a_dead_letter(noise: bytes) -> None:
    assert refused(noise).reason
