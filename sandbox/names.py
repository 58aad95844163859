"""A DNS server over UDP (RFC 1035) that answers from a table of CNAMEs.

A name in the table has its CNAME, or no record at all if the entry is None; any other name does not exist.
Names that start with `servfail.` get SERVFAIL, names that start with `silent.` no answer.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Mapping
from typing import Any

import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

TIME_TO_LIVE = 60  # seconds


class Names:
    """The table; names are compared without case and final dot."""

    def __init__(self, table: Mapping[str, str | None] | None = None) -> None:
        self._lock = threading.Lock()
        self._table: dict[str, str | None] = {}
        self.update(table or {})

    def update(self, entries: Mapping[str, str | None]) -> None:
        """Adds or replaces. Raises ValueError when a name or target is no string."""
        checked = {_plain(name): None if to is None else _dotless(to) for name, to in entries.items()}
        with self._lock:
            self._table.update(checked)

    def remove(self, name: str) -> None:
        with self._lock:
            self._table.pop(_plain(name), None)

    def clear(self) -> None:
        with self._lock:
            self._table.clear()

    def describe(self) -> dict[str, str | None]:
        with self._lock:
            return dict(self._table)

    def answer(self, query: dns.message.Message) -> dns.message.Message | None:
        """The response to send; None for silence."""
        question = query.question[0]
        name = _plain(question.name.to_text())
        if name.startswith("silent."):
            return None
        response = dns.message.make_response(query)
        response.flags |= dns.flags.AA
        table = self.describe()
        response.set_rcode(_rcode(name, table))
        if table.get(name):
            response.answer.append(dns.rrset.from_text(question.name, TIME_TO_LIVE, "IN", "CNAME", f"{table[name]}."))
        return response


class NamesServer(socketserver.ThreadingUDPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], names: Names) -> None:
        self.names = names
        super().__init__(address, NamesHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class NamesHandler(socketserver.BaseRequestHandler):
    server: NamesServer

    def handle(self) -> None:
        data, reply_socket = self.request
        try:
            query = dns.message.from_wire(data)
        except dns.exception.DNSException:
            return
        response = self.server.names.answer(query) if query.question else None
        if response is not None:
            reply_socket.sendto(response.to_wire(), self.client_address)


def _rcode(name: str, table: Mapping[str, Any]) -> dns.rcode.Rcode:
    if name.startswith("servfail."):
        return dns.rcode.SERVFAIL
    return dns.rcode.NOERROR if name in table else dns.rcode.NXDOMAIN


def _plain(name: str) -> str:
    return _dotless(name).lower()


def _dotless(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no name: give a string such as 'www.example.com'")
    return name.rstrip(".")
