"""HTTP proxies that leave by addresses of their own: `http://127.0.0.11:<port>` asks the outside from 127.0.0.11.

`leaves_by` has one leave by another address, `is_broken` answer 502, `wants_password` 407. What they are asked
in vain for (CONNECT) is refused: nothing here speaks TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

#: Linux has all of 127.0.0.0/8 on the loopback.
FIRST = 11

PATIENCE = 60.0

_HOP_BY_HOP = {"connection", "proxy-connection", "keep-alive", "transfer-encoding", "content-length"}


class Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, number: int) -> None:
        self.address = self.leaves_by = f"127.0.0.{FIRST + number}"
        self.is_broken = self.wants_password = False
        self.requests = 0
        super().__init__((self.address, 0), Handler)
        self.url = f"http://{self.address}:{self.server_port}"
        self._thread = Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers that are closed let go of what they asked."""


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self.server.requests += 1
        asked = urlsplit(self.path)
        if self.server.is_broken or not asked.hostname:
            self.send_error(502, "This proxy is broken" if self.server.is_broken else "Ask for a whole address")
            return
        if self.server.wants_password:
            self.send_error(407)
            return
        headers = dict(_passed_on(self.headers.items()))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        source = (self.server.leaves_by, 0)
        with closing(HTTPConnection(asked.hostname, asked.port, timeout=PATIENCE, source_address=source)) as outside:
            try:
                outside.request(
                    self.command, asked._replace(scheme="", netloc="").geturl() or "/", body or None, headers
                )
                answer = outside.getresponse()
                content = answer.read()
            except (OSError, HTTPException) as error:
                self.send_error(502, type(error).__name__)
                return
        self._pass_back(answer, content)

    do_POST = do_GET  # noqa: N815

    def do_CONNECT(self) -> None:
        self.send_error(405, "Nothing here speaks TLS")

    def _pass_back(self, answer: HTTPResponse, content: bytes) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in _passed_on(answer.getheaders()):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _passed_on(headers: Any) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP)
