"""The worker's channel delivers tickets, answers and broadcasts; what is none of them ends nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from queue import Empty
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.pidbox import Mailbox
from kombu.utils.json import dumps

from celeriac.seam import transport
from celeriac.seam.envelope import NotATicket, check_reply, check_ticket
from celeriac.seam.transport import Channel
from tests.pure.envelopes import REAL, packed


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

    def deliver(message: Any, queue: str) -> None:
        made.delivered.append(message)
        made.delivered_to.append(queue)

    made = object.__new__(Channel)
    made.__dict__ |= {
        "carries_tickets": True,
        "client": Client(replies),
        "delivered": [],
        "delivered_to": [],
        "_pool": object(),
        "connection_errors": (ConnectionError, OperationalError),
        "_queue_cycle": SimpleNamespace(rotate=lambda _: None),
        "_fanout_to_queue": {"celery.pidbox": "here.celery.pidbox"},
    }
    made.connection = SimpleNamespace(_deliver=(reader and (lambda message, _: reader(message))) or deliver)
    return made


def broadcast(data: bytes) -> Any:
    return SimpleNamespace(parse_response=lambda: [b"pmessage", b"/0.*", b"/0.celery.pidbox", data])


def test_a_ticket_is_delivered() -> None:
    made = channel((b"celeriac:tickets:builds", packed(REAL)))
    assert made._brpop_read()
    assert made.delivered == [REAL]
    assert made.delivered_to == ["builds"]


def test_an_answer_is_delivered() -> None:
    made = channel((b"0a1b.reply.celery.pidbox", packed(ANSWER)))
    assert made._brpop_read()
    assert made.delivered == [ANSWER]


class Aside:
    """What is set aside, in a Redis that may refuse it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.pushed: list[tuple[str, bytes]] = []

    def __call__(self, **_: Any) -> Aside:
        return self

    def lpush(self, key: str, payload: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.pushed.append((key, payload))


@pytest.mark.parametrize(("key", "name"), [(b"celeriac:tickets:builds", "builds"), (b"\xff", "\ufffd")])
def test_what_is_no_ticket_is_set_aside_and_told(
    key: bytes, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, aside = channel((key, b"hello")), Aside()
    monkeypatch.setattr(transport, "Redis", aside)
    with caplog.at_level(logging.ERROR), pytest.raises(Empty):
        made._brpop_read()
    assert made.delivered == []
    assert aside.pushed == [(f"celeriac:adopting:{name}", b"hello")]
    assert re.search(r"Set a message on '.*' aside that is no ticket: .*", caplog.text)


@pytest.mark.parametrize(
    ("queue", "error"), [(b"0a1b.reply.celery.pidbox", None), (b"celeriac:tickets:builds", ConnectionError("away"))]
)
def test_an_answer_that_is_none_is_dropped_and_so_is_what_cannot_be_set_aside(
    queue: bytes, error: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, before, aside = channel((queue, b"hello")), Channel.dropped, Aside(error)
    monkeypatch.setattr(transport, "Redis", aside)
    with caplog.at_level(logging.ERROR), pytest.raises(Empty):
        made._brpop_read()
    assert (made.delivered, aside.pushed) == ([], [])
    assert Channel.dropped == before + 1
    assert re.search(r"Dropped a message on '.*' that is no .*; \d+ so far", caplog.text)


def test_an_empty_queue_stays_empty() -> None:
    with pytest.raises(Empty):
        channel(None)._brpop_read()


def test_the_channels_client_is_as_before_after_each_read() -> None:
    made = channel((b"0a1b.reply.celery.pidbox", b"hello"), (b"celeriac:tickets:builds", packed(REAL)))
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
