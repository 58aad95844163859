"""The way to a server that tests cut: who comes as the server is away is no end of it, nobody outlasts a cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Event

import pytest

from celeriac.local.valkey import free_port
from tests.dashboard.relay import Relay

PATIENCE = 10


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay(f"postgresql://127.0.0.1:{free_port()}/shop")
    relay.start()
    yield relay
    relay.close()


def connected(relay: Relay) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE)
    client.connect(str(relay.path))
    return client


def test_who_came_too_early_keeps_nobody_from_the_server(relay: Relay) -> None:
    with connected(relay) as early:
        assert early.recv(1) == b""
    with socket.create_server(("127.0.0.1", relay.server.port or 0)) as server, connected(relay) as client:
        server.settimeout(PATIENCE)
        with server.accept()[0] as served:
            client.sendall(b"ask")
            assert served.recv(3) == b"ask"
            served.sendall(b"answer")
            assert client.recv(6) == b"answer"
            relay.stop()
            assert (client.recv(1), served.recv(1)) == (b"", b"")


def test_who_is_being_connected_as_it_is_cut_gets_nothing(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, server = socket.socketpair()
    server.settimeout(PATIENCE)
    asked, cut = Event(), Event()

    def connect() -> socket.socket:
        asked.set()
        cut.wait(PATIENCE)
        return outer

    monkeypatch.setattr(relay, "_connected", connect)
    with server, connected(relay) as client:
        assert asked.wait(PATIENCE)
        relay.stop()
        cut.set()
        assert (client.recv(1), server.recv(1)) == (b"", b"")
