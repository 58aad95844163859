"""A Postgres that lets nobody in is tried seldom, by one of a process' threads, and at once where it serves."""

from __future__ import annotations

import gc
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg2
import pytest
from sqlalchemy.exc import OperationalError

from celeriac.store import attempts
from celeriac.store.attempts import FIRST, LONGEST, Attempts
from celeriac.store.connections import Database

#: Seconds between two looks of a thread, and for how long each looks.
EVERY, LONG = 0.05, 60.0


WAYS: dict[str, Callable[[Database], AbstractContextManager[object]]] = {
    "engine": lambda database: database.engine.connect(), "statement": Database.statement, "cursor": Database.cursor
}  # fmt: skip


class Server:
    def __init__(self) -> None:
        self.now, self.tried, self.serves = 0.0, 0, False

    def connect(self, made: Attempts) -> str:
        made.begin()
        self.tried += 1
        if not self.serves:
            raise psycopg2.OperationalError('connection to server at "x" failed: Connection refused')
        made.succeeded()
        return "connection"


def ask(server: Server, made: Attempts) -> str | None:
    try:
        return server.connect(made)
    except psycopg2.OperationalError as error:
        made.failed(error)
        return None if "Connection refused" in str(error) else str(error)


def test_whoever_asks_a_server_that_is_away_is_tried_once_a_second_at_most() -> None:
    server = Server()
    made = Attempts(lambda: server.now)
    while server.now < LONG:
        assert [ask(server, made) for _ in range(9)] == [None] * 9
        server.now += EVERY
    assert LONG / (LONGEST + EVERY) <= server.tried <= LONG / (LONGEST / 2) + LONGEST / FIRST


def test_once_it_serves_it_is_noticed_after_the_longest_rest_and_no_rest_is_left() -> None:
    server = Server()
    made = Attempts(lambda: server.now)
    for _ in range(20):
        ask(server, made)
        server.now += LONGEST
    server.serves, server.tried = True, 0
    server.now += LONGEST
    assert [ask(server, made) for _ in range(3)] == ["connection"] * 3
    server.serves = False
    assert ask(server, made) is None
    server.now += FIRST
    assert [ask(server, made), server.tried] == [None, 5]


def test_while_one_tries_the_others_hear_what_was_last() -> None:
    server = Server()
    made = Attempts(lambda: server.now)
    ask(server, made)
    server.now += FIRST

    made.begin()
    with pytest.raises(psycopg2.OperationalError, match="Connection refused"):
        made.begin()
    made.succeeded()
    made.begin()


def test_all_databases_of_a_process_share_the_attempts_at_a_server() -> None:
    first, second = Database("postgresql://nobody@/none"), Database("postgresql://nobody@/none")
    assert first._attempts is second._attempts
    assert first._attempts is not attempts.at("postgresql://nobody@/other")
    del first, second
    gc.collect()
    assert "postgresql://nobody@/none" not in attempts._by_address


@pytest.mark.parametrize("way", WAYS)
def test_in_whatever_way_a_connection_is_needed_the_last_refusal_is_told_again(way: str) -> None:
    database = Database(f"postgresql://nobody@127.0.0.1:1/{way}")
    needs = WAYS[way]
    for _ in range(3):
        with pytest.raises(OperationalError, match="Connection refused"), needs(database):
            pass
    assert database._attempts._failure is not None
    assert database._attempts._failure.rest == FIRST


class Pooler(socketserver.ThreadingTCPServer):
    """As PgBouncer does while its Postgres is away: it lets clients in, and ends them at their first statement."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self) -> None:
        self.let_in = 0
        super().__init__(("127.0.0.1", 0), Client)


class Client(socketserver.StreamRequestHandler):
    server: Pooler

    def handle(self) -> None:
        while (asked := self.read_message())[:4] in (SSL, GSS):
            self.wfile.write(b"N")
        assert asked[:4] == VERSION_3
        self.server.let_in += 1
        settings = (b"server_version\x0016.4\0", b"client_encoding\0UTF8\0", b"DateStyle\0ISO, MDY\0")
        told = [(b"R", bytes(4)), *((b"S", one) for one in settings), (b"Z", b"I")]
        self.wfile.write(b"".join(message(*one) for one in told))
        if self.rfile.read(1) != b"Q":
            return
        self.read_message()
        self.wfile.write(message(b"E", b"SFATAL\0VFATAL\0C08P01\0Mserver login has been failing\0\0"))

    def read_message(self) -> bytes:
        return self.rfile.read(struct.unpack("!i", self.rfile.read(4))[0] - 4)


SSL, GSS, VERSION_3 = (struct.pack("!HH", *code) for code in ((1234, 5679), (1234, 5680), (3, 0)))


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with Pooler() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_a_pooler_that_lets_in_while_its_server_is_away_is_tried_as_seldom(pooler: Pooler, way: str) -> None:
    """To be let in is no answer: only a statement that was answered ends the rests."""
    database = Database(f"postgresql://nobody@127.0.0.1:{pooler.server_address[1]}/{way}")
    needs = WAYS[way]
    now = 0.0
    database._attempts._clock = lambda: now
    while now < LONG / 2:
        with pytest.raises(OperationalError, match="server closed the connection"), needs(database):
            pass
        now += EVERY
    assert pooler.let_in <= LONG / 2 / (LONGEST / 2) + LONGEST / FIRST
    assert database.answered == 0.0
