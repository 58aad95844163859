"""What the harness of faults does is what it says: the load's pace, the order of what is late, what is awaited."""

from __future__ import annotations

import asyncio
import time

import pytest

from faults.members import Unmet, must, until
from faults.pace import Way
from faults.proxy import Client, Gate
from faults.rounds import Fault


def test_a_way_calls_no_more_often_than_its_share() -> None:
    """Told to rest, it does not call once more; told to go on, it does not wait out its old pace."""
    called: list[float] = []

    def call() -> None:
        called.append(time.monotonic())

    way = Way(call, 0.1, lambda *_: None)
    way.start()
    for times in (1, 2):
        way.go(1.0)
        assert until(lambda times=times: len(called) == times, 5.0)  # type: ignore[misc]
    way.go(0.0)
    assert way.is_resting.wait(5.0)
    assert len(called) == 2


def test_a_way_goes_on_after_it_was_refused() -> None:
    refusals: list[str] = []

    def call() -> None:
        raise ConnectionError("gone")

    way = Way(call, 1.0, lambda name, error: refusals.append(f"{name}: {error}"))
    way.start()
    way.go(100.0)
    assert until(lambda: len(refusals) == 2, 5.0)
    way.go(0.0)
    assert refusals[0] == "call: gone"


class Sink(asyncio.Protocol):
    """A server: what it gets of three pieces, whole."""

    def __init__(self, whole: asyncio.Future[bytes]) -> None:
        self.whole, self.got = whole, b""

    def data_received(self, data: bytes) -> None:
        self.got += data
        if len(self.got) == 3:
            self.whole.set_result(self.got)


async def _through_a_proxy() -> bytes:
    """The first two pieces come late, the third after all is as it was."""
    loop = asyncio.get_running_loop()
    whole, connected = loop.create_future(), loop.create_future()

    def connect() -> Client:
        connected.set_result(Client(gate))
        made: Client = connected.result()
        return made

    server = await loop.create_server(lambda: Sink(whole), "127.0.0.1", 0)
    gate = Gate(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    door = await loop.create_server(connect, "127.0.0.1", 0)
    process, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", door.sockets[0].getsockname()[1])
    client = await connected
    for seconds, piece in ((0.1, b"1"), (0.05, b"2"), (None, b"3")):
        gate.tell({"mode": "pass"} if seconds is None else {"mode": "slow", "seconds": seconds})
        client.data_received(piece)
    try:
        return await asyncio.wait_for(whole, 5.0)
    finally:
        for open_one in (process, client.transport, server, door):
            open_one.close()


def test_what_comes_late_is_not_overtaken() -> None:
    assert asyncio.run(_through_a_proxy()) == b"123"


def test_what_must_come_is_named_where_it_does_not() -> None:
    must(lambda: True, 0.0, "nothing")
    with pytest.raises(Unmet, match=r"waited 0\.1 s in vain for a worker to be back"):
        must(lambda: False, 0.1, "a worker to be back")


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        ("overlapped: 2", True),
        ("keys overlapped: 1", False),
        ("lost: 1", False),
        ("api ended by itself: overlapped", False),
    ],
)
def test_what_a_fault_allows_is_that_and_nothing_like_it(problem: str, known: bool) -> None:
    assert Fault("twins", "two of a name", lambda _: None, allows=("overlapped",)).knows(problem) is known
