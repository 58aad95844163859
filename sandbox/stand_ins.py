"""How a stand-in of another service joins the sandbox's HTTP server: below a path of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from typing import Any, Protocol

from sandbox.endpoints import Reply


@dataclass(frozen=True)
class Request:
    """`path` begins with the stand-in's prefix, percent-encoded as it came; `headers` ignore case."""

    method: str
    path: str
    query: str
    headers: Message
    body: bytes


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
