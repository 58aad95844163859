"""Round trips: a way to a server that takes its time, and what went which way on it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Way:
    """Leads to a server. `late`: how long (seconds) each piece is under way. `port`: where it begins, on 127.0.0.1."""

    late: float = 0.0
    port: int = 0
    connections: list[Trips] = field(default_factory=list)

    def trips(self) -> int:
        """How often somebody waited for an answer so far."""
        return sum(len(one.said) for one in list(self.connections))


@dataclass
class Trips:
    """One connection's: each begins with what was said after an answer."""

    said: list[bytes] = field(default_factory=list)
    answered: bool = True

    def goes(self, data: bytes) -> None:
        if self.answered:
            self.said.append(data[:300])
        self.answered = False

    def comes(self) -> None:
        self.answered = True


class _End(asyncio.Protocol):
    """One end of a connection; what comes in here goes out at the other."""

    def __init__(self, way: Way, trips: Trips, *, is_client: bool) -> None:
        self.way, self.trips, self.is_client = way, trips, is_client
        self.other: asyncio.Transport | None = None
        self.early: list[bytes] = []
        self.late: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.trips.goes(data) if self.is_client else self.trips.comes()
        self.late.append(data)
        asyncio.get_running_loop().call_later(self.way.late, self._next)

    def _next(self) -> None:
        data = self.late.popleft()
        if self.other is None:
            self.early.append(data)
        else:
            self.other.write(data)

    def join(self, other: asyncio.Transport) -> None:
        self.other = other
        for data in self.early:
            other.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.other is not None:
            self.other.close()


@contextmanager
def way(*, host: str = "", port: int = 0, socket: str = "", late: float = 0.0) -> Iterator[Way]:
    """A way to the server at `host` and `port`, or at a Unix `socket`."""
    made, loop, ready, over = Way(late), asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    ends: list[_End] = []

    async def lead(near: _End) -> None:
        far = _End(made, near.trips, is_client=False)
        try:
            if socket:
                out, _ = await loop.create_unix_connection(lambda: far, socket)
            else:
                out, _ = await loop.create_connection(lambda: far, host, port)
        except OSError:  # nobody is there
            near.transport.abort()
            return
        far.join(near.transport)
        near.join(out)
        if near.transport.is_closing():  # it left before the way was there
            out.close()

    def opened() -> _End:
        trips = Trips()
        made.connections.append(trips)
        near = _End(made, trips, is_client=True)
        ends.append(near)
        loop.call_soon(lambda: loop.create_task(lead(near)))
        return near

    async def serve() -> None:
        door = await loop.create_server(opened, "127.0.0.1", 0)
        made.port = door.sockets[0].getsockname()[1]
        ready.set()
        await over.wait()
        door.close()
        for near in ends:
            near.transport.abort()
        await asyncio.sleep(0.01)  # closed connections are told of it

    def run() -> None:
        loop.run_until_complete(serve())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
