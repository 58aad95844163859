"""The server's HTTP: what two servers could read differently is refused, and nobody keeps a connection for ever."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
import uvicorn

from celeriac.api.listener import AT_ONCE, Listener
from celeriac.api.protocol import Protocol
from celeriac.local.valkey import free_port
from tests.processes import until

LARGE = 32 * 2**20

BUSY, FREE = threading.Event(), threading.Event()


class Quick(Protocol):
    HEAD, BODY = 0.3, 0.4


class Small(Protocol):
    MOST = 5


async def echo(scope, receive, send) -> None:
    """Answers with the body's size, once it has all of it; `/large` with more than any buffer takes.

    While it answers `/busy`, the server does nothing else.
    """
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope["path"] == "/busy":
        BUSY.set()
        assert FREE.wait(60)
    body = bytes(LARGE) if scope["path"] == "/large" else str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(protocol: type[Protocol]) -> Iterator[int]:
    port = free_port()
    config = uvicorn.Config(
        echo, "127.0.0.1", port, http=protocol, ws="none", lifespan="off", log_level="critical", backlog=AT_ONCE
    )
    server = Listener(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, "the server to listen")
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(Quick) as port:
        yield port


def connected(port: int) -> socket.socket:
    tcp = socket.create_connection(("127.0.0.1", port), timeout=20)
    tcp.settimeout(20)
    return tcp


def read(tcp: socket.socket) -> bytes:
    """Until the server closes; it resets a connection on which it has not read everything."""
    told = b""
    with suppress(ConnectionResetError):
        while part := tcp.recv(65536):
            told += part
    return told


def asked(port: int, *parts: bytes) -> tuple[int, bytes]:
    """The status and the body of the answer to what closes, or is refused."""
    with closing(connected(port)) as tcp:
        for part in parts:
            tcp.sendall(part)
        return answered(read(tcp))


def answered(told: bytes) -> tuple[int, bytes]:
    head, _, body = told.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


GET = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"


def test_a_request_is_answered_however_it_arrives(port: int) -> None:
    assert asked(port, GET + b"\r\n") == (200, b"0")
    assert asked(port, POST[:20], POST[20:] + b"Content-Length: 3\r\n", b"\r\nab", b"c") == (200, b"3")
    assert asked(port, POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n") == (200, b"3")


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        GET.replace(b"\r\n", b"\n") + b"\n",
        GET + b"X-One: a\nX-Two: b\r\n\r\n",
        GET + b"X-Folded: a\r\n b\r\n\r\n",
        GET + b"X-Spaced : a\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["both lengths", "1.0", "two lengths", "bare LF", "one bare LF", "folded", "spaced", "nonsense"],
)
def test_what_can_be_read_in_two_ways_is_a_problem(port: int, request_: bytes) -> None:
    with closing(connected(port)) as tcp:
        tcp.sendall(request_)
        told = read(tcp)
    status, body = answered(told)
    document = json.loads(body)
    assert (status, document["status"], document["title"]) == (400, 400, "Bad Request")
    head = told.partition(b"\r\n\r\n")[0].lower()
    assert b"application/problem+json" in head
    assert b"x-content-type-options: nosniff" in head


def test_a_head_that_has_no_end_is_a_problem(port: int) -> None:
    assert asked(port, GET + b"X-Large: " + b"a" * 20_000)[0] == 431


def test_a_head_that_comes_at_once_has_the_same_limit(port: int) -> None:
    assert asked(port, GET + b"X-Large: " + b"a" * 70_000 + b"\r\n\r\n")[0] == 431
    assert asked(port, GET + b"X-Large: " + b"a" * 15_000 + b"\r\n\r\n")[0] != 431


def test_what_does_not_arrive_whole_is_not_waited_for(port: int) -> None:
    for sent, seconds in ((b"", "0.3 s"), (GET, "0.3 s"), (POST + b"Content-Length: 3\r\n\r\na", "0.4 s")):
        status, body = asked(port, sent)
        assert (status, seconds in json.loads(body)["detail"]) == (408, True)
    with closing(connected(port)) as tcp:
        tcp.sendall(GET)
        with pytest.raises(OSError):
            until(lambda: tcp.sendall(b"X: y\r\n"), "a head that trickles in to be cut off")


def test_a_connection_that_waits_makes_room_for_one_that_comes() -> None:
    with serving(Small) as port, ExitStack() as stack:
        waiting = [stack.enter_context(closing(connected(port))) for _ in range(12)]
        assert asked(port, GET + b"\r\n") == (200, b"0")
        assert answered(read(waiting[0]))[0] == 503


class Counted(Protocol):
    MOST, looked = 50, 0

    def awaits_client(self) -> bool:
        Counted.looked += 1
        return super().awaits_client()


def test_to_make_room_costs_the_same_however_many_connections_there_are() -> None:
    with serving(Counted) as port, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(closing(connected(port)))
        assert asked(port, GET + b"\r\n") == (200, b"0")
        assert 200 < Counted.looked < 1000


def test_who_comes_while_the_server_is_busy_is_let_in_once_it_is_free(port: int) -> None:
    """Whom the system drops, as its queue is full, tries again after a second."""
    with ExitStack() as stack:
        busy = stack.enter_context(closing(connected(port)))
        busy.sendall(GET.replace(b"/", b"/busy", 1) + b"\r\n")
        assert BUSY.wait(20)
        stack.callback(FREE.set)
        for _ in range(400):
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=0.5)))
        FREE.set()
        assert answered(read(busy)) == (200, b"0")


def test_an_answer_that_nobody_reads_is_not_kept(port: int) -> None:
    with closing(connected(port)) as tcp:
        tcp.sendall(GET.replace(b"/", b"/large", 1) + b"\r\n")
        first = tcp.recv(1)
        time.sleep(3 * Quick.BODY)  # it is that nothing is read which takes this long
        assert 0 < len(first + read(tcp)) < LARGE


def test_whoever_reads_no_answer_makes_room_for_one_that_comes() -> None:
    with serving(Small) as port, ExitStack() as stack:
        for _ in range(12):
            unread = stack.enter_context(closing(connected(port)))
            unread.sendall(GET.replace(b"/", b"/large", 1) + b"\r\n")
            assert unread.recv(1)
        assert asked(port, GET + b"\r\n") == (200, b"0")


def test_a_head_request_that_does_not_arrive_whole_is_not_waited_for(port: int) -> None:
    with closing(connected(port)) as tcp:
        tcp.sendall(GET.replace(b"GET", b"HEAD", 1) + b"Content-Length: 5\r\n\r\n")
        assert read(tcp).startswith(b"HTTP/1.1 408")
