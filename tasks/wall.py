"""A wall around the browser: a proxy of this process that reaches public addresses only, whatever a page asks for.

Chromium sends all it asks through it and resolves no name itself. Each connection's name is resolved here, once, and
the address that was judged is the one that is connected to: neither a redirect, nor a frame, nor a name that
resolves to something else a moment later leads to loopback, private or link-local addresses. Hosts in
`BROWSER_ALLOWED_HOSTS` (names or addresses, with commas between them) are reached wherever they are.
"""

from __future__ import annotations

import os
import re
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

#: A request's line and headers, in bytes; a browser sends less.
LONGEST_HEAD = 65_536

#: Seconds: to connect, and for a connection that nobody says anything on.
CONNECT, SILENCE = 20.0, 120.0

#: IPv6 addresses that an IPv4 address can be behind: NAT64, beside those that `ipaddress` knows.
_NAT64 = bytes.fromhex("0064ff9b0000000000000000")

_HOP = re.compile(rb"^(?:proxy-[\w-]+|connection|keep-alive):", re.IGNORECASE)

#: As socket.getaddrinfo.
Resolve = Callable[..., list[tuple[Any, ...]]]


class Refused(Exception):
    """Nobody is connected to this host."""


def is_public(address: str) -> bool:
    """Whether anybody on the Internet could mean this address."""
    ip = ip_address(address.partition("%")[0])
    return ip.is_global and not ip.is_multicast and all(one.is_global for one in _within(ip))


def _within(ip: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if isinstance(ip, IPv6Address):
        yield from (one for one in (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if one is not None)
        if ip.packed.startswith(_NAT64):
            yield IPv4Address(ip.packed[-4:])


def allowed_hosts(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    given = environ.get("BROWSER_ALLOWED_HOSTS", "").split(",")
    return frozenset(host.strip().strip("[]").lower() for host in given if host.strip())


class Wall:
    """Listens on a port of loopback until `close`. `refused`: why hosts were, the last hundred."""

    def __init__(self, allowed: Collection[str] = (), resolve: Resolve = socket.getaddrinfo) -> None:
        self.allowed, self.resolve = frozenset(allowed), resolve
        self.refused: deque[str] = deque(maxlen=100)
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.wall = self
        Thread(target=self._server.serve_forever, name="browser's wall", daemon=True).start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def connect(self, host: str, port: int) -> socket.socket:
        """To the first of its addresses that answers, if all of them are public. Raises Refused, OSError."""
        name = host.rstrip(".").lower()
        found = list(dict.fromkeys(str(one[4][0]) for one in self.resolve(host, port, type=socket.SOCK_STREAM)))
        if name not in self.allowed and (inside := [one for one in found if not is_public(one)]):
            why = f"{name} is at {inside[0]}, which is no public address: BROWSER_ALLOWED_HOSTS names what is reached"
            self.refused.append(why)
            raise Refused(why)
        problem: OSError = OSError(f"{name} has no address")
        for address in found:
            try:
                return socket.create_connection((address, port), timeout=CONNECT)
            except OSError as error:
                problem = error
        raise problem


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    wall: Wall

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the browser's affair, which tells of it."""


class _Connection(BaseRequestHandler):
    """One request: the next one on the same connection could be for another host."""

    request: socket.socket
    server: _Server

    def handle(self) -> None:
        self.request.settimeout(SILENCE)
        head, _, rest = self._head().partition(b"\r\n\r\n")
        if not head:
            return
        method, target, version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        is_tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if is_tunnel else target)
        try:
            outside = self.server.wall.connect(parts.hostname or "", parts.port or 80)
        except Refused as refused:
            self._answer(403, str(refused))
            return
        except (OSError, ValueError) as error:
            self._answer(502, f"{parts.hostname} is not reached: {error}")
            return
        with closing(outside):
            outside.settimeout(SILENCE)
            if is_tunnel:
                self.request.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                outside.sendall(rest)
                self._pipe_both(outside)
            else:
                path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
                lines = [f"{method} {path} {version}".encode("latin-1")]
                lines += [line for line in head.split(b"\r\n")[1:] if not _HOP.match(line)]
                outside.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n")
                self._send_body(outside, head, rest)
                _pipe(outside, self.request)

    def _head(self) -> bytes:
        said = b""
        while b"\r\n\r\n" not in said and len(said) <= LONGEST_HEAD:
            if not (more := self.request.recv(65_536)):
                return b""
            said += more
        return said if b"\r\n\r\n" in said else b""

    def _send_body(self, outside: socket.socket, head: bytes, rest: bytes) -> None:
        length = re.search(rb"(?im)^content-length: *(\d+)", head)
        left = int(length[1]) if length else 0
        while left > 0 and (part := rest[:left] or self.request.recv(min(left, 65_536))):
            outside.sendall(part)
            left, rest = left - len(part), b""

    def _pipe_both(self, outside: socket.socket) -> None:
        there = Thread(target=_pipe, args=(self.request, outside), daemon=True)
        there.start()
        _pipe(outside, self.request)
        there.join()

    def _answer(self, status: int, why: str) -> None:
        body = why.encode()
        head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        self.request.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65_536):
            target.sendall(part)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
