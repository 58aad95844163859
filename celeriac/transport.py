"""Redis transport that outlives its input.

A stock consumer ends with "Unrecoverable error" on several kinds of malformed message, so whoever can LPUSH could
crash-loop the fleet. Here what is no ticket is dropped and counted before any consumer sees it.
"""

from __future__ import annotations

import base64
import json
import logging
from typing import Any

from kombu.transport import redis as stock
from kombu.utils.encoding import bytes_to_str

logger = logging.getLogger(__name__)

TICKET = "celeriac.ticket"


class NotATicket(ValueError):
    """Why a message is dropped."""


def check_ticket(payload: bytes) -> dict[str, Any]:
    """The envelope of a well-formed ticket, or NotATicket. Bounded work: no attribute of the message is trusted."""
    try:
        envelope = json.loads(payload)
        headers, properties = envelope["headers"], envelope["properties"]
        body = json.loads(base64.b64decode(envelope["body"], validate=True))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise NotATicket(f"{type(error).__name__}: {error}") from None
    for fits, what in (
        (isinstance(headers, dict) and headers.get("task") == TICKET, "not addressed to the ticket task"),
        (isinstance(headers, dict) and isinstance(headers.get("id"), str), "no id"),
        (
            isinstance(properties, dict) and isinstance(properties.get("delivery_info"), dict),
            "no delivery info",
        ),
        (isinstance(properties, dict) and isinstance(properties.get("delivery_tag"), str), "no delivery tag"),
        (
            isinstance(properties, dict) and properties.get("body_encoding") == "base64",
            "unknown body encoding",
        ),
        (envelope.get("content-type") == "application/json", "unknown content type"),
        (envelope.get("content-encoding") == "utf-8", "unknown content encoding"),
        (_is_ticket_body(body), "its body is no ticket"),
    ):
        if not fits:
            raise NotATicket(what)
    if set(headers) - KNOWN_HEADERS:
        raise NotATicket(f"unknown headers: {sorted(set(headers) - KNOWN_HEADERS)[:3]}")
    if any(headers.get(name) for name in ("eta", "expires", "timelimit_hard", "chord", "group")):
        raise NotATicket("a ticket is for now: no eta, no expiry, no group")
    return envelope


KNOWN_HEADERS = frozenset(
    {
        "lang",
        "task",
        "id",
        "shadow",
        "eta",
        "expires",
        "group",
        "group_index",
        "retries",
        "timelimit",
        "root_id",
    }
    | {"parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting"}
    | {"stamped_headers", "stamps"}
)


def _is_ticket_body(body: Any) -> bool:
    match body:
        case [[str(), list() as ids, str()], {}, dict()]:
            return all(isinstance(i, int) for i in ids)
    return False


class Channel(stock.Channel):
    """Checks each BRPOP reply before it is delivered."""

    dropped = 0

    def _brpop_read(self, **options: Any) -> bool:
        inner = self.client.parse_response

        def checked(connection: Any, command: str, **more: Any) -> Any:
            reply = inner(connection, command, **more)
            if reply and not self._admits(*reply):
                return None
            return reply

        # The stock method reads, decodes and delivers in one go; its only seam is the client's parse_response.
        self.client.parse_response = checked
        try:
            return bool(super()._brpop_read(**options))
        finally:
            self.client.__dict__.pop("parse_response", None)

    def _admits(self, queue: bytes, payload: bytes) -> bool:
        try:
            check_ticket(payload)
        except NotATicket as why:
            Channel.dropped += 1
            name = bytes_to_str(queue)
            logger.error("Dropped a message on %r that is no ticket (%s); %d so far", name, why, Channel.dropped)
            return False
        return True


class Transport(stock.Transport):
    """`redis://` with the checking channel."""

    Channel = Channel
