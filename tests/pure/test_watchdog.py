"""The watchdog ends what hangs."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import psycopg2

from celeriac.worker.watchdog import shut_sockets


def test_a_connection_that_closes_meanwhile_keeps_no_other_from_being_shut() -> None:
    def closed() -> int:
        raise psycopg2.InterfaceError("connection already closed")

    ours, theirs = socket.socketpair()
    bad = socket.socket()
    with ours, theirs, bad:
        unconnected = SimpleNamespace(fileno=bad.fileno)
        connections = [SimpleNamespace(fileno=closed), unconnected, SimpleNamespace(fileno=ours.fileno)]
        database: Any = SimpleNamespace(open_connections=lambda: connections)
        shut_sockets(database)
        theirs.settimeout(5)
        assert theirs.recv(1) == b""
