"""The exact form of a ticket's message; anything else in a queue is no ticket."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from kombu.utils.json import loads

from celeriac.roles.bounds import Fits
from celeriac.roles.rules import TICKET

#: Maximum bytes of a message; a ticket with the largest `chunk` that a role may have takes 300 kB.
MOST_BYTES = 1_000_000
MOST_ROWS = 10_000


class NotATicket(ValueError):
    """The reason for dropping a message."""


def check_ticket(payload: bytes) -> dict[str, Any]:
    """Return a ticket's envelope as `publish.Publisher` writes it. Raises NotATicket. Bounded work; nothing is trusted.

    Every field has to have the form in which it is written. A wrong type anywhere (a time limit, a clock, a tag) would
    raise in the consumer, and an embedded callback or chain would make the worker send other tasks.
    """
    envelope = _read(payload)
    _demand("envelope", envelope, _ENVELOPE)
    _demand("headers", envelope["headers"], _HEADERS)
    _demand_address(envelope["properties"])
    if not _is_ticket_body(_read_body(envelope["body"])):
        raise NotATicket("its body is no ticket")
    return dict(envelope)


def check_reply(payload: bytes) -> dict[str, Any]:
    """Return the envelope of a reply to remote control, checked so that its reader cannot fail. Raises NotATicket."""
    envelope = _read(payload)
    _demand("envelope", envelope, _ENVELOPE)
    _demand("headers", envelope["headers"], {"ticket": _is_text, "clock": _is_count})
    _demand_address(envelope["properties"])
    if type(_read_body(envelope["body"])) is not dict:
        raise NotATicket("its body is no answer")
    return dict(envelope)


def check_message(payload: bytes) -> dict[str, Any]:
    """Return the envelope of a user's own message if kombu can deliver it; its content is not checked.

    Raises NotATicket.
    """
    envelope = _loads(payload)
    if type(envelope) is not dict:
        raise NotATicket("it is no object")
    for section in ("headers", "properties"):
        if type(envelope.get(section)) is not dict:
            raise NotATicket(f"its {section} is no object")
    properties = envelope["properties"]
    body, encoding = envelope.get("body"), properties.get("body_encoding")
    if type(body) is not str or type(properties.get("delivery_tag")) is not str:
        raise NotATicket("it has no usable body and delivery_tag")
    if encoding == "base64":
        _decoded(body)
    if encoding not in (None, "base64") or type(properties.get("delivery_info")) is not dict:
        raise NotATicket("it has no usable body_encoding and delivery_info")
    return dict(envelope)


# -- decoding, as kombu will
# ---------------------------------------------------------------------------------------------


def _read(payload: bytes) -> Any:
    if len(payload) > MOST_BYTES:
        raise NotATicket(f"{len(payload)} bytes are too many")
    return _loads(payload)


def _read_body(body: str) -> Any:
    return _loads(_decoded(body))


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise NotATicket(f"its body is not base64: {error}") from None


def _loads(text: bytes) -> Any:
    """Decode JSON as kombu does. Its decoders of dates and the like apply anywhere, and raise many kinds of errors."""
    try:
        return loads(text.decode("utf-8"))
    except Exception as error:
        raise NotATicket(f"{type(error).__name__}: {error}"[:200]) from None


# -- what each field must be -------------------------------------------------------------------------------------------

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _is(expected: object) -> Fits:
    return lambda value: type(value) is type(expected) and value == expected


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= 1000 and value.isprintable()


def _is_id(value: Any) -> bool:
    return type(value) is str and _ID.fullmatch(value) is not None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_object(value: Any) -> bool:
    return type(value) is dict


_ENVELOPE: Mapping[str, Fits] = {
    "body": lambda value: type(value) is str,
    "content-type": _is("application/json"),
    "content-encoding": _is("utf-8"),
    "headers": _is_object,
    "properties": _is_object,
}

_HEADERS: Mapping[str, Fits] = {
    "lang": _is("py"),
    "task": _is(TICKET),
    "id": _is_id,
    "root_id": _is_id,
    "parent_id": _is(None),
    "shadow": _is_text,
    "argsrepr": _is_text,
    "kwargsrepr": _is_text,
    "origin": _is_text,
    "eta": _is(None),
    "expires": _is(None),
    "group": _is(None),
    "group_index": _is(None),
    "retries": _is(0),
    "timelimit": _is([None, None]),
    "ignore_result": _is(True),
    "replaced_task_nesting": _is(0),
    "stamped_headers": _is(None),
    "stamps": _is({}),
}

_PROPERTIES: Mapping[str, Fits] = {
    "delivery_info": _is_object,
    "delivery_mode": lambda value: value in (1, 2) and type(value) is int,
    "delivery_tag": _is_id,
    "priority": _is(0),
    "body_encoding": _is("base64"),
}

_DELIVERY: Mapping[str, Fits] = {"exchange": _is_text, "routing_key": _is_text}

#: Optional fields, which a stopping worker adds to the tickets it puts back.
_REMARKS: Mapping[str, Fits] = {"redelivered": _is_flag, "correlation_id": _is_id}


def _demand(what: str, section: Mapping[str, Any], fields: Mapping[str, Fits]) -> None:
    if type(section) is not dict:
        raise NotATicket(f"its {what} is no object")
    for name, fits in fields.items():
        if name not in section or not fits(section[name]):
            raise NotATicket(f"its {what} has no usable {name}")
    for name in section.keys() - fields.keys():
        if name not in _REMARKS or not _REMARKS[name](section[name]):
            raise NotATicket(f"its {what} has an unknown {name[:50]!r}")


def _demand_address(properties: Any) -> None:
    _demand("properties", properties, _PROPERTIES)
    _demand("delivery info", properties["delivery_info"], _DELIVERY)


_NOTHING_FOLLOWS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def _is_ticket_body(body: Any) -> bool:
    match body:
        case [[str(role), list(ids), str(token)], dict(kwargs), dict(embed)]:
            addressed = _is_text(role) and (_is_id(token) if token else len(ids) <= 1)
            rows = len(ids) <= MOST_ROWS and all(_is_count(i) for i in ids) and (not token or bool(ids))
            return addressed and rows and not kwargs and embed == _NOTHING_FOLLOWS
    return False
