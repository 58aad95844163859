"""An SMTP server that keeps what it is given.

Recipients whose address starts with `refused@` are refused for good (550), with `later@` for now (451).
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from email import message_from_bytes, policy
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(frozen=True)
class Message:
    sender: str
    recipients: tuple[str, ...]
    message_id: str
    subject: str
    text: str


class Mailbox:
    """Every message accepted, in order; the hooks are aiosmtpd's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        with self._lock:
            return list(self._messages)

    def clear(self) -> None:
        with self._lock:
            self._messages.clear()

    def describe(self) -> list[dict[str, Any]]:
        return [asdict(message) for message in self.messages]

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address.startswith("refused@"):
            return "550 5.1.1 No such mailbox"
        if address.startswith("later@"):
            return "451 4.7.1 Try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        message = _message(envelope)
        with self._lock:
            self._messages.append(message)
        return "250 Message accepted"


class MailServer(Controller):
    """The mailbox on a socket; port 0 takes a free one, then found in `port`."""

    def _trigger_server(self) -> None:
        assert self.server is not None
        self.port = self.server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        super()._trigger_server()  # type: ignore[no-untyped-call]


def _message(envelope: Envelope) -> Message:
    content = envelope.content if isinstance(envelope.content, bytes) else b""
    parsed = message_from_bytes(content, policy=policy.default)
    body = parsed.get_body(("plain",))
    return Message(
        sender=envelope.mail_from or "",
        recipients=tuple(envelope.rcpt_tos),
        message_id=str(parsed["Message-ID"] or ""),
        subject=str(parsed["Subject"] or ""),
        text=body.get_content().replace("\r\n", "\n") if body else "",
    )
