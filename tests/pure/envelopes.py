"""Real tickets as they lie in Redis, and what can be made of one."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any
from uuid import uuid4

from kombu import Connection
from kombu.messaging import Producer
from kombu.utils.json import dumps

from celeriac import Celeriac, Settings
from celeriac.dispatch.publish import Publisher, Ticket

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


BODY = unpacked_body(REAL)
