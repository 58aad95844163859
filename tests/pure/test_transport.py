"""What is no ticket is dropped before a consumer sees it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celeriac.dispatch.publish import Ticket
from celeriac.roles.rules import TICKET
from celeriac.seam.envelope import MOST_BYTES, MOST_ROWS, NotATicket, check_ticket
from tests.examples import of_a_hundred
from tests.pure.envelopes import BODY, REAL, TOKEN, changed, packed, published, with_body, without

NAMES = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), min_size=1, max_size=200).filter(
    str.isprintable
)


@given(NAMES, st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=20))
@settings(max_examples=of_a_hundred(25))
def test_every_ticket_the_publisher_makes_is_admitted(role: str, ids: list[int]) -> None:
    envelope = published(Ticket(role, "builds", ids, TOKEN))
    assert check_ticket(packed(envelope)) == envelope


@pytest.mark.parametrize("ids", [[], [7]])
def test_a_kick_is_admitted(ids: list[int]) -> None:
    check_ticket(packed(published(Ticket("build", "builds", ids))))


def test_the_largest_ticket_there_is_is_admitted() -> None:
    check_ticket(packed(published(Ticket("build", "builds", [2**63 - 1 - i for i in range(MOST_ROWS)], TOKEN))))


def test_a_ticket_that_a_stopping_worker_put_back_is_admitted() -> None:
    """Kombu marks what it restores: in the envelope, or, with its acknowledgements, in headers and delivery info."""
    check_ticket(packed(REAL | {"redelivered": True}))
    restored = changed("headers", "redelivered", to=True)
    restored["properties"]["delivery_info"]["redelivered"] = True
    check_ticket(packed(restored))


FOLLOWS = BODY[2]
PROTOCOL_1 = {
    "task": TICKET, "id": "1", "args": BODY[0], "kwargs": {}, "retries": 0, "eta": None, "expires": None, "utc": True,
}  # fmt: skip

KOMBUS = ("no such", "decimal", "uuid", "datetime", "bytes")

REQUIRED = [
    *REAL,
    *(f"headers.{field}" for field in REAL["headers"]),
    *(f"properties.{field}" for field in REAL["properties"] if field != "correlation_id"),
    *(f"properties.delivery_info.{field}" for field in ("exchange", "routing_key")),
]

BYTES = {
    "nothing": b"",
    "not JSON": b"hello",
    "half of a ticket": packed(REAL)[:-20],
    "two tickets in one": packed(REAL) * 2,
    "NUL bytes": b"\x00" * 20,
    "a ticket behind NUL": b"\x00" + packed(REAL),
    "invalid UTF-8": packed(REAL).replace(b"builds", b"\xff\xfe"),
    "UTF-16": json.dumps(REAL).encode("utf-16"),
    "UTF-32": json.dumps(REAL).encode("utf-32-le"),
    "a byte order mark": b"\xef\xbb\xbf" + packed(REAL),
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"headers":' * 100_000,
    "a number of 5,000 digits": packed(REAL).replace(b'"retries": 0', b'"retries": ' + b"9" * 5000),
    "a pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05hello\x94.",
    "too large": packed(REAL) + b" " * MOST_BYTES,
    "a forged date behind a duplicate key": packed(REAL).replace(
        b'"retries": 0', b'"retries": {"__type__": "no such", "__value__": 1}, "retries": 0'
    ),
    "a forged decimal behind a duplicate key": packed(REAL).replace(
        b'"retries": 0', b'"retries": {"__type__": "decimal", "__value__": "x"}, "retries": 0'
    ),
}

#: Field: what it may not be.
VALUES: dict[str, tuple[Any, ...]] = {
    "body": (None, "", 1, [], {}, "not base64!", "é", "YQ=", "AAAA"),
    "content-type": (None, "application/x-python", 1, []),
    "content-encoding": (None, "rot13", "binary", 1),
    "redelivered": (None, 1, "x", []),
    "more": (None, 1),
    "headers": (None, [], "x", 1),
    "headers.lang": (None, "js"),
    "headers.task": (None, "", "no.such.task", 1, [], {}),
    "headers.id": (None, True, 1, "", [], {}, "x" * 9999, "\x00", TOKEN.upper() + "\n"),
    "headers.root_id": (None, 1, [], "\ud83d"),
    "headers.parent_id": (1, "x", []),
    "headers.eta": (0, "soon", "2030-01-01", 1e300, [], {}),
    "headers.expires": (0, "soon", "2030-01-01", -1, []),
    "headers.timelimit": (None, 1, "x", [1], [None, "x"], [1, 1]),
    "headers.retries": (None, "x", 1, 2**70, False, -1),
    "headers.group": ("x", 1, []),
    "headers.group_index": (0, "x"),
    "headers.replaced_task_nesting": (None, 1, "x", False),
    "headers.argsrepr": (None, 1, [], "\x00", "\n", *({"__type__": t, "__value__": "x"} for t in KOMBUS)),
    "headers.kwargsrepr": (None, 1, {}),
    "headers.shadow": (None, 1, {}, "x\x1b[2J", "x" * 1001),
    "headers.origin": (None, 1, []),
    "headers.stamped_headers": ([], ["x"], 1, "x"),
    "headers.stamps": (None, [], {"x": "y"}),
    "headers.ignore_result": (None, False, 1, "x"),
    "headers.compression": ("bzip2", None),
    "headers.method": ("x",),
    "properties": (None, [], "x", 1),
    "properties.delivery_tag": (None, [], {}, 1, "", "x"),
    "properties.delivery_mode": (None, "2", 3, True, []),
    "properties.body_encoding": (None, "hex", "", []),
    "properties.priority": (None, "x", 1.5, False, 9, []),
    "properties.correlation_id": (None, 1, [], ""),
    "properties.reply_to": ("x", None),
    "properties.expiration": ("x",),
    "properties.delivery_info": (None, [], "x"),
    "properties.delivery_info.exchange": (None, 1, []),
    "properties.delivery_info.routing_key": (None, 1, []),
    "properties.delivery_info.consumer_tag": ([], "x"),
}

#: A body's three parts: what they may not be.
ROLES = (None, 1, [], "a\x00", "\ud83d", "x" * 1001)
ROWS = (None, 1, "12", {"1": 1}, [None], ["1"], [1.0], [True], [-1], [2**63], [[1]], [1] * (MOST_ROWS + 1))
TOKENS = (None, 1, "x", TOKEN + "x")

BODIES: list[Any] = [
    *(None, 1, "x", [], {}, [[], {}, {}], BODY[:2], [*BODY, 1]),
    *([[role, [1], TOKEN], {}, FOLLOWS] for role in ROLES),
    *([["build", rows, TOKEN], {}, FOLLOWS] for rows in ROWS),
    *([["build", [1], token], {}, FOLLOWS] for token in TOKENS),
    [["build", [], TOKEN], {}, FOLLOWS],
    [["build", [1, 2], ""], {}, FOLLOWS],
    [["build", [1]], {}, FOLLOWS],
    [["build", [1], TOKEN, 1], {}, FOLLOWS],
    [["build", [1], {"__type__": "datetime", "__value__": "x"}], {}, FOLLOWS],
    [BODY[0], {"token": TOKEN}, FOLLOWS],
    *([BODY[0], {}, FOLLOWS | {follow: [{"task": "other"}]}] for follow in FOLLOWS),
    [BODY[0], {}, FOLLOWS | {"more": None}],
    [BODY[0], {}, {}],
    PROTOCOL_1,
]

MESSAGES: dict[str, Any] = {
    **{f"the JSON {value!r}": value for value in (None, True, 7, 1.5, "text", [], {}, [])},
    "a protocol 1 message": PROTOCOL_1,
    "a protocol 1 message in an envelope": without("headers") | with_body(PROTOCOL_1),
    **{f"no {field}": without(*field.split(".")) for field in REQUIRED},
    **{f"{field}={value!r}": changed(*field.split("."), to=value) for field in VALUES for value in VALUES[field]},
    **{f"the body's JSON {body!r}": with_body(body) for body in BODIES},
    "a body that is no UTF-8": with_body(b"\xff\xfe[]"),
    "a body in UTF-16": with_body(json.dumps(BODY).encode("utf-16")),
    "a body that is too deep": with_body(b"[" * 50_000),
}


@pytest.mark.parametrize("payload", BYTES.values(), ids=BYTES)
def test_bytes_that_are_no_ticket_are_refused(payload: bytes) -> None:
    assert payload != packed(REAL)
    with pytest.raises(NotATicket):
        check_ticket(payload)


@pytest.mark.parametrize("message", MESSAGES.values(), ids=[f"message {n}" for n in range(len(MESSAGES))])
def test_messages_that_are_no_ticket_are_refused(message: Any) -> None:
    assert repr(message) != repr(REAL)
    with pytest.raises(NotATicket):
        check_ticket(packed(message))


NOISE = st.binary(min_size=1)


@given(NOISE | NOISE.map(lambda noise: packed(REAL)[:40] + noise + packed(REAL)[40:]) | st.text().map(packed))
def test_noise_raises_nothing_but_a_refusal(noise: bytes) -> None:
    with contextlib.suppress(NotATicket):
        check_ticket(noise)


def test_a_refusal_is_not_as_long_as_the_message() -> None:
    for message in (changed("headers", "x" * 9999, to=1), changed("headers", "id", to="x" * 9999)):
        with pytest.raises(NotATicket) as refused:
            check_ticket(packed(message))
        assert len(str(refused.value)) < 300
