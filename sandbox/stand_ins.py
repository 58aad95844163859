"""How a stand-in of another service joins the sandbox's HTTP server: below a path of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, Protocol


@dataclass(frozen=True)
class Request:
    """`path` begins with the stand-in's prefix, percent-encoded as it came; `headers` ignore case; `client` is an
    address.
    """

    method: str
    path: str
    query: str
    headers: Message
    body: bytes
    client: str


@dataclass(frozen=True)
class Reply:
    """`document` is sent as JSON, unless `content_type` says otherwise: then it is bytes."""

    status: int
    document: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    @property
    def payload(self) -> bytes:
        if self.status == 204:
            return b""
        return json.dumps(self.document).encode() if self.content_type == "application/json" else bytes(self.document)


def refusal(status: int, error_code: str, message: str, **headers: str) -> Reply:
    """An error object, as Duda's are ("Error", Introduction); `headers` with underscores for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"error_code": error_code, "message": message}, named)


@dataclass(frozen=True)
class Asked:
    """A request that was understood. Faults are drawn and ordered by `operation`; `perform` has the effect."""

    operation: str
    subject: str
    perform: Callable[[], Reply]


class StandIn(Protocol):
    """`prefix` is the path below which it answers, `name` where `/_sandbox/state` shows it."""

    name: str
    prefix: str

    def answer(self, request: Request) -> Asked | Reply:
        """What to perform, or the reply to a request that makes no sense. Called from many threads."""

    def environ(self, http_url: str) -> dict[str, str]:
        """The settings with which the application talks to it."""

    def describe(self) -> Any:
        """What it holds, as JSON."""

    def clear(self) -> None:
        """Forgets what it holds."""
