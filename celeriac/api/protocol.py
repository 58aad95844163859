"""The API's HTTP/1.1: strict parsing, time limits for requests, and space for new connections.

Requests that two servers may read differently are refused (RFC 9112, sections 6.3 and 11.2): a Content-Length beside a
Transfer-Encoding, lines that end without CR, folded headers.
"""

from __future__ import annotations

import asyncio
import re
import resource
from collections import OrderedDict
from http import HTTPStatus
from typing import Any
from weakref import WeakKeyDictionary

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from celeriac.api.problems import Problem

#: Sent with every answer.
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

#: The longest request line and headers, in bytes.
LONGEST_HEAD = 16_384

_AMBIGUOUS_LINE = re.compile(rb"(?<!\r)\n|\r\n[ \t]")
_HEAD_ENDS = b"\r\n\r\n"


class Strict(h11.Connection):
    """An h11 connection that raises RemoteProtocolError for ambiguous requests, and keeps it as `refusal`."""

    refusal: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        try:
            if self.their_state is h11.IDLE:
                self._check_lines()
            event = super().next_event()
            if isinstance(event, h11.Request):
                _check_framing(event)
        except h11.RemoteProtocolError as error:
            self.refusal = error
            raise
        return event

    def _check_lines(self) -> None:
        head = self.trailing_data[0].partition(_HEAD_ENDS)[0]
        if len(head) > LONGEST_HEAD:  # h11 checks the length only while the head has no end yet
            why = f"the request's line and headers may have {LONGEST_HEAD:,} bytes"
            raise h11.RemoteProtocolError(why, error_status_hint=431)
        if _AMBIGUOUS_LINE.search(head):
            raise h11.RemoteProtocolError("a line of the request is folded, or ends without CR")


def _check_framing(request: h11.Request) -> None:
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version < b"1.1"):
        raise h11.RemoteProtocolError("give a Content-Length or a Transfer-Encoding, not both, and the latter in 1.1")


def most_connections() -> int:
    """Return half of the files this process may open: the rest is for Postgres and Redis."""
    return max(50, min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


#: The connections of each server that wait for their clients, in the order in which they are closed to make space.
_in_turn: WeakKeyDictionary[uvicorn.Config, OrderedDict[Protocol, None]] = WeakKeyDictionary()


class Protocol(H11Protocol):
    """One connection. A request's head may take `HEAD` seconds to arrive, its body `BODY` seconds, and the client may
    take as long to read the answer. Above `MOST` connections, the one that has waited longest for its client is closed.
    """

    HEAD, BODY = 10.0, 60.0
    MOST = most_connections()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = Strict(h11.SERVER, LONGEST_HEAD)
        self._stage: Any = None
        self._in_turn = _in_turn.setdefault(self.config, OrderedDict())
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._time_stage()
        if len(self.connections) > self.MOST:
            self._make_space()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_stage()

    def pause_writing(self) -> None:
        """Start the time limit for reading the answer: it has filled the buffer."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.BODY, self.transport.abort)
        self._queue()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
            self._queue()

    def on_response_complete(self) -> None:
        """Queue the connection if it stays open: it waits for the next request."""
        super().on_response_complete()
        self._queue()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_unread()
        self._in_turn.pop(self, None)
        super().connection_lost(exc)

    def _time_stage(self) -> None:
        """Start the time limit of a new stage; data that arrives meanwhile does not extend it."""
        stage = self.conn.their_state
        if stage is self._stage:
            return
        self._stop()
        self._stage = stage
        self._queue()
        if stage in (h11.IDLE, h11.SEND_BODY):
            allowed = self.HEAD if stage is h11.IDLE else self.BODY
            self._timer = self.loop.call_later(allowed, self._too_slow, allowed)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self, allowed: float) -> None:
        if self._stage is self.conn.their_state:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, f"the request did not arrive whole within {allowed:g} s")

    def _queue(self) -> None:
        """Put the connection last among those to close, if it waits for its client."""
        self._in_turn.pop(self, None)
        if self.awaits_client():
            self._in_turn[self] = None

    def _make_space(self) -> None:
        """Close the connection that has waited longest, at a cost that does not grow with the number of connections."""
        while self._in_turn:
            oldest, _ = self._in_turn.popitem(last=False)
            if oldest.awaits_client():
                why = f"there are more than {self.MOST} connections; try again soon"
                oldest.refuse(HTTPStatus.SERVICE_UNAVAILABLE, why)
                return

    def awaits_client(self) -> bool:
        """Return whether it waits for a request, the rest of one, or for the client to read; a new one waits, too."""
        if self._unread is not None:
            return True
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing()

    def send_400_response(self, msg: str) -> None:
        error = self.conn.refusal if isinstance(self.conn, Strict) else None
        self.refuse(error.error_status_hint if error else 400, str(error or msg))

    def refuse(self, status: int, detail: str) -> None:
        """Answer with a problem document, unless an answer has begun, and close."""
        if self._unread is not None:
            self.transport.abort()
            return
        if self.transport.is_closing():
            return
        try:
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._answer(Problem(status, detail))
        finally:
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.close()

    def _answer(self, problem: Problem) -> None:
        response = problem.response(None)
        response.headers.update(SECURITY_HEADERS | {"Connection": "close"})
        headers = [*self.server_state.default_headers, *response.raw_headers]
        reason = HTTPStatus(problem.status_code).phrase.encode()
        has_no_body = self.cycle is not None and self.cycle.scope["method"] == "HEAD"
        events = (
            h11.Response(status_code=problem.status_code, headers=headers, reason=reason),
            h11.Data(data=b"" if has_no_body else bytes(response.body)),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
