"""The one HTTP server: each stand-in answers below its prefix, and every request may meet a fault.

`/_sandbox/…` shows and changes the state of the whole sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sandbox.faults import Fate, Faults
from sandbox.stand_ins import Asked, Reply, Request, StandIn, refusal

Control = Callable[[str, str, Any], Any]


class Server(ThreadingHTTPServer):
    """One thread a connection. `control` answers `/_sandbox/…`: (method, path, JSON) → JSON."""

    request_queue_size = 1024
    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        faults: Faults,
        control: Control,
        stand_ins: Sequence[StandIn],
    ) -> None:
        self.faults, self.control, self.stand_ins = faults, control, stand_ins
        self.requests: Counter[str] = Counter()
        self.in_flight = 0
        self.stopping, self.hanging = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.connections_opened = 0
        super().__init__(address, Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def release(self) -> None:
        """Ends the hanging of all requests that hang now."""
        held, self.hanging = self.hanging, threading.Event()
        held.set()

    def stop(self) -> None:
        self.stopping.set()
        self.release()
        self.shutdown()
        self._thread.join()
        self.server_close()
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):  # Its own thread may be closing it.
                    connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def counted(self, operation: str) -> Iterator[None]:
        with self._lock:
            self.requests[operation] += 1
            self.in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self.in_flight -= 1

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
            self.connections_opened += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # Clients that give up are part of the game.
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        stand_in = next((s for s in self.server.stand_ins if path.startswith(s.prefix)), None)
        if stand_in:
            request = Request(self.command, path, query, self.headers, raw, self.client_address[0])
            self._answer(stand_in.answer(request))
        elif path.startswith("/_sandbox/"):
            self._send(self._controlled(path.removeprefix("/_sandbox/"), raw))
        else:
            self._send(refusal(404, "ResourceNotExist", f"There is no {self.command} {path}"))

    do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def _controlled(self, path: str, raw: bytes) -> Reply:
        try:
            return Reply(200, self.server.control(self.command, path, json.loads(raw or b"null")))
        except (ValueError, TypeError) as error:
            return refusal(400, "InvalidInput", str(error))
        except LookupError as error:
            return refusal(404, "ResourceNotExist", str(error))

    def _answer(self, call: Asked | Reply) -> None:
        with self.server.counted(call.operation if isinstance(call, Asked) else "unknown"):
            if isinstance(call, Asked):
                self._meet(call, self.server.faults.next_fate(call.operation, call.subject))
            else:
                self._send(call)

    def _meet(self, call: Asked, fate: Fate) -> None:
        self.server.stopping.wait(fate.latency_seconds)
        match fate.fault:
            case None:
                self._send(call.perform())
            case "rate_limited":
                self._send(self._rate_limited())
            case "server_error":
                self._send(refusal(fate.server_error, "InternalError", "Something went wrong"))
            case "hang_before":
                self._hang()
            case "hang_after":
                call.perform()
                self._hang()
            case "hang_late":
                self._hang()
                call.perform()
            case "reset_before":
                self._reset()
            case "reset_after":
                call.perform()
                self._reset()

    def _rate_limited(self) -> Reply:
        plan = self.server.faults.plan
        when = f"{plan.retry_after:g}"
        if plan.retry_after_date:
            when = formatdate(time.time() + plan.retry_after, usegmt=True)
        return refusal(429, "TooManyRequests", "Too many requests", Retry_After=when)

    def _hang(self) -> None:
        self.close_connection = True
        self.server.hanging.wait(self.server.faults.plan.hang_seconds)

    def _reset(self) -> None:
        """An RST instead of a FIN: the socket lingers for 0 seconds and nobody shuts it down first."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if self.close_connection:  # because the client asked for it: untold, it would use the connection again
            self.send_header("Connection", "close")
        if reply.status != 204:
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(reply.payload)))
        self.end_headers()
        self.wfile.write(reply.payload)
