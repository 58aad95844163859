"""Whatever a ticket's fields become, Celery's own consumer survives what is admitted."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from celery.worker import state, strategy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu import Connection
from kombu.utils.json import dumps

from celeriac.roles.rules import TICKET
from celeriac.seam.envelope import NotATicket, check_ticket
from tests.pure.envelopes import APP, BODY, REAL, TOKEN, packed, unpacked_body


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
        assert {limits["timeout"], limits["soft_timeout"]} == {0}, "none"
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


def test_a_ticket_names_rows_and_carries_no_arguments() -> None:
    args, kwargs, _ = unpacked_body(REAL)
    assert (args, kwargs) == (["build", [1, 2, 2**63 - 1], TOKEN], {})


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
