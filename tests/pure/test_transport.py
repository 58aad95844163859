"""What is no ticket is dropped before a consumer sees it; what is admitted, Celery's own consumer survives."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from queue import Empty
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from celery.worker import state, strategy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.messaging import Producer
from kombu.pidbox import Mailbox
from kombu.utils.json import dumps

from celeriac import Celeriac, Settings
from celeriac.tickets import Publisher, Ticket
from celeriac.transport import MOST_BYTES, MOST_ROWS, TICKET, Channel, NotATicket, check_reply, check_ticket

TOKEN = "7f1f6a52-6f0e-4d0b-9b0a-2f6f3a1c5d11"
APP = Celeriac(
    "shop",
    settings=Settings(database_url="postgresql://nowhere.invalid/", redis_url="redis://nowhere.invalid/"),
    set_as_current=False,
)


def published(ticket: Ticket) -> dict[str, Any]:
    """The envelope that kombu's Redis channel would LPUSH for what the publisher publishes."""
    with Connection(f"memory://{uuid4()}") as connection:
        producer = Producer(connection, auto_declare=False)
        Publisher(APP)._put(producer, ticket)
        envelope = producer.channel._queue_for(ticket.queue).get()
        return dict(json.loads(dumps(envelope)))


REAL = published(Ticket("build", "builds", [1, 2, 2**63 - 1], TOKEN))


def packed(envelope: Any) -> bytes:
    return json.dumps(envelope).encode()


def with_body(body: Any) -> dict[str, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return REAL | {"body": base64.b64encode(text).decode()}


def unpacked_body(envelope: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(envelope["body"]))


def changed(*path: str, to: Any) -> dict[str, Any]:
    """The real envelope with one field set."""
    envelope = copy.deepcopy(REAL)
    place = envelope
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return envelope


def without(*path: str) -> dict[str, Any]:
    envelope = copy.deepcopy(REAL)
    place = envelope
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return envelope


# -- real tickets ------------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), min_size=1, max_size=200).filter(
    str.isprintable
)


@given(NAMES, st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=20))
@settings(max_examples=25)
def test_every_ticket_the_publisher_makes_is_admitted(role: str, ids: list[int]) -> None:
    envelope = published(Ticket(role, "builds", ids, TOKEN))
    assert check_ticket(packed(envelope)) == envelope


@pytest.mark.parametrize("ids", [[], [7]])
def test_a_kick_is_admitted(ids: list[int]) -> None:
    check_ticket(packed(published(Ticket("build", "builds", ids))))


def test_the_largest_ticket_there_is_is_admitted() -> None:
    check_ticket(packed(published(Ticket("build", "builds", [2**63 - 1 - i for i in range(MOST_ROWS)], TOKEN))))


def test_a_ticket_that_a_stopping_worker_put_back_is_admitted() -> None:
    """kombu marks what it restores: in the envelope, or, with its acknowledgements, in headers and delivery info."""
    check_ticket(packed(REAL | {"redelivered": True}))
    restored = changed("headers", "redelivered", to=True)
    restored["properties"]["delivery_info"]["redelivered"] = True
    check_ticket(packed(restored))


# -- everything else ---------------------------------------------------------------------------------------------------

BODY = unpacked_body(REAL)
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


# -- Celery's own consumer ---------------------------------------------------------------------------------------------


class Consumer:
    """As much of a worker as a message meets before a child process runs it."""

    hostname = "worker@here"
    connection_errors = (OSError,)
    disable_rate_limits = False
    timer = SimpleNamespace(call_at=print)
    controller = SimpleNamespace(state=SimpleNamespace(revoked=set()))

    def __init__(self) -> None:
        self.task_buckets: dict[str, None] = {TICKET: None}
        self.event_dispatcher = SimpleNamespace(enabled=True, send=self.send)
        self.pool = SimpleNamespace(apply_async=self.apply, putlocks=None)

    def send(self, kind: str, **event: Any) -> None:
        json.dumps([kind, event])

    def apply(self, target: Callable[..., Any], args: Any, **limits: Any) -> Any:
        assert (limits["timeout"], limits["soft_timeout"]) == (None, None)
        json.dumps(args[0:2])
        return None

    def on_task_request(self, request: Any) -> None:
        request.execute_using_pool(self.pool)
        repr(request), request.info(), request.revoked()

    def apply_eta_task(self, *_: Any) -> None:
        raise AssertionError("a ticket waits for nothing")

    _limit_task = _limit_post_eta = apply_eta_task


@pytest.fixture
def consume() -> Iterator[Callable[[bytes], None]]:
    consumer = Consumer()
    task = APP.tasks[TICKET]
    handle = strategy.default(task, APP, consumer, info=lambda *message, **_: json.dumps(message, default=repr))
    with Connection("memory://consumer") as connection:
        channel = connection.channel()

        def one(payload: bytes) -> None:
            raw = json.loads(dumps(json.loads(payload.decode())))
            message = channel.Message(raw, channel=channel)
            message.accept = {"application/json"}
            channel.qos.append(message, message.delivery_tag)
            assert message.headers["task"] == TICKET
            handle(message, None, message.ack, message.reject, [])
            channel.qos.ack(message.delivery_tag)
            channel._restore(message)

        yield one
    state.reset_state()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


WHOLE = REAL | {"body": BODY}
PLACES = [path for path in places(WHOLE) if path]
NASTY: list[Any] = [
    None, True, False, 0, 1, -1, 1.5, 2**63, 2**70, 1e308, "", "x", "2030-01-01T00:00:00", "\x00", "\ud83d", "x" * 1001,
    [], [1], [None, None], [None], ["x"], {}, {"x": 1}, {"redelivered": True}, str(uuid4()), "é", [[]],
    {"__type__": "uuid", "__value__": {"hex": uuid4().hex}},
]  # fmt: skip

Consume = Callable[[bytes], None]
Change = tuple[tuple[Any, ...], str, Any]


REFUSED, CONSUMED = "refused", "consumed"


def fate(consume: Consume, *changes: Change) -> str:
    """What becomes of the ticket, so changed: refused, consumed, or the error with which it broke the consumer."""
    whole = copy.deepcopy(WHOLE)
    for path, how, value in changes:
        change(whole, path, how, value)
    if "body" in whole:
        whole["body"] = base64.b64encode(json.dumps(whole["body"]).encode()).decode()
    payload = packed(whole)
    try:
        check_ticket(payload)
    except NotATicket:
        return REFUSED
    try:
        consume(payload)
    except Exception as error:
        return f"admitted with {changes!r}, and then it broke the consumer: {error!r}"
    return CONSUMED


def test_an_unchanged_ticket_passes_through_celerys_consumer(consume: Consume) -> None:
    assert fate(consume) == CONSUMED


def test_whatever_a_single_field_becomes_celerys_consumer_survives_what_is_admitted(consume: Consume) -> None:
    fates = Counter(fate(consume, (path, "set", value)) for path in PLACES for value in NASTY)
    assert set(fates) == {REFUSED, CONSUMED}
    assert fates[CONSUMED] < fates.total() / 5


HOW = st.sampled_from(["set", "delete", "add"])


@given(st.lists(st.tuples(st.sampled_from(PLACES), HOW, st.sampled_from(NASTY)), max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_admitted_celerys_consumer_survives(consume: Consume, changes: list[Change]) -> None:
    assert fate(consume, *changes) in (REFUSED, CONSUMED)


def change(whole: Any, path: tuple[Any, ...], how: str, value: Any) -> None:
    place = whole
    try:
        for step in path[:-1]:
            place = place[step]
        if how == "delete":
            del place[path[-1]]
        elif how == "add":
            place[path[-1]] = place[path[-1]] | {"redelivered": value}
        else:
            place[path[-1]] = copy.deepcopy(value)
    except (KeyError, IndexError, TypeError):
        return  # an earlier change took it away


# -- answers to remote control -----------------------------------------------------------------------------------------


def answered(body: Any) -> dict[str, Any]:
    """The envelope of an answer as kombu's mailbox sends it."""
    with Connection(f"memory://{uuid4()}") as connection:
        mailbox = Mailbox("celery", connection=connection)
        queue = mailbox.reply_queue(connection.default_channel)
        queue.declare()
        mailbox._publish_reply(body, mailbox.reply_exchange.name, mailbox.oid, str(uuid4()))
        return dict(json.loads(dumps(connection.default_channel._queue_for(queue.name).get())))


ANSWER = answered({"worker@there": {"ok": "pong"}})


def test_an_answer_to_remote_control_is_admitted_on_its_queue_alone() -> None:
    assert check_reply(packed(ANSWER)) == ANSWER
    with pytest.raises(NotATicket):
        check_ticket(packed(ANSWER))


@pytest.mark.parametrize(
    "change",
    [
        {"headers": None}, {"headers": {}}, {"headers": {"ticket": [], "clock": 1}},
        {"headers": {"ticket": "x", "clock": "x"}}, {"headers": {"ticket": "x", "clock": 2**70}}, {"properties": {}},
        {"body": "x"}, {"body": "e30"}, {"body": base64.b64encode(b"[]").decode()}, {"content-type": "application/x"},
        {"content-encoding": "x"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_malformed_answer_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(NotATicket):
        check_reply(packed(ANSWER | change))


# -- the channel -------------------------------------------------------------------------------------------------------


class Unreadable(Exception):
    """Raised by a broadcast's reader."""


class Client:
    """A Redis client whose BRPOP answers with `replies`."""

    connection = None

    def __init__(self, replies: Sequence[Any]) -> None:
        self.replies = list(replies)

    def parse_response(self, *_: Any, **__: Any) -> Any:
        return self.replies.pop(0)


def channel(*replies: Any, reader: Callable[[Any], None] | None = None) -> Any:
    """A channel whose Redis answers with `replies`, and what it delivers."""
    made = object.__new__(Channel)
    made.__dict__ |= {
        "client": Client(replies),
        "delivered": [],
        "connection_errors": (ConnectionError, OperationalError),
        "_queue_cycle": SimpleNamespace(rotate=lambda _: None),
        "_fanout_to_queue": {"celery.pidbox": "here.celery.pidbox"},
    }
    deliver = reader or (lambda message: made.delivered.append(message))
    made.connection = SimpleNamespace(_deliver=lambda message, _: deliver(message))
    return made


def broadcast(data: bytes) -> Any:
    return SimpleNamespace(parse_response=lambda: [b"pmessage", b"/0.*", b"/0.celery.pidbox", data])


def test_a_ticket_is_delivered() -> None:
    made = channel((b"builds", packed(REAL)))
    assert made._brpop_read()
    assert made.delivered == [REAL]


def test_an_answer_is_delivered() -> None:
    made = channel((b"0a1b.reply.celery.pidbox", packed(ANSWER)))
    assert made._brpop_read()
    assert made.delivered == [ANSWER]


@pytest.mark.parametrize("queue", [b"builds", b"0a1b.reply.celery.pidbox", b"\xff"])
def test_what_is_no_ticket_is_dropped_counted_and_told(queue: bytes, caplog: pytest.LogCaptureFixture) -> None:
    made, before = channel((queue, b"hello")), Channel.dropped
    with caplog.at_level(logging.ERROR), pytest.raises(Empty):
        made._brpop_read()
    assert made.delivered == []
    assert Channel.dropped == before + 1
    assert re.search(r"Dropped a message on '.*' that is no ticket \(NotATicket: .*\); \d+ so far", caplog.text)


def test_an_empty_queue_stays_empty() -> None:
    with pytest.raises(Empty):
        channel(None)._brpop_read()


def test_the_channels_client_is_as_before_after_each_read() -> None:
    made = channel((b"builds", b"hello"), (b"builds", packed(REAL)))
    with pytest.raises(Empty):
        made._brpop_read()
    assert made._brpop_read()


def test_a_broadcast_is_delivered() -> None:
    made = channel()
    assert made._receive_one(broadcast(b'{"a": 1}'))
    assert made.delivered == [{"a": 1}]


@pytest.mark.parametrize(
    "data",
    [b"hello", b'{"__type__": "decimal", "__value__": "x"}', b'{"__type__": "bytes", "__value__": 1}', b"[" * 100_000],
    ids=["not JSON", "a forged decimal", "forged bytes", "deep"],
)
def test_a_broadcast_that_cannot_be_read_does_not_end_the_worker(data: bytes) -> None:
    made = channel()
    with contextlib.suppress(Empty):  # kombu itself knows what is no JSON
        assert not made._receive_one(broadcast(data))
    assert made.delivered == []


def test_a_broadcast_its_reader_breaks_on_does_not_end_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    def reader(_: Any) -> None:
        raise Unreadable("no delivery_tag")

    before = Channel.dropped
    assert not channel(reader=reader)._receive_one(broadcast(b"{}"))
    assert Channel.dropped == before + 1
    assert "Dropped a message that was broadcast (Unreadable: no delivery_tag)" in caplog.text


@pytest.mark.parametrize("error", [ConnectionError, OperationalError, SystemExit, Empty])
def test_a_lost_connection_and_an_order_to_stop_pass(error: type[BaseException]) -> None:
    def reader(_: Any) -> None:
        raise error

    with pytest.raises(error):
        channel(reader=reader)._receive_one(broadcast(b"{}"))
