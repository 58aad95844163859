"""`python -m faults.proxy REDIS POSTGRES`: between the processes and their servers, spoiling what passes.

Prints the two ports it listens on. A line of JSON on its input says what it does from then on, as
`{"of": "redis", "mode": "slow", "seconds": 0.2}`; each is answered with a line of JSON.

    pass      what comes is passed on
    freeze    nothing is; it is passed on later
    slow      each piece comes so many `seconds` late
    reset     as `slow`, and of such a `share` of the pieces the connection is reset
    cut       all connections are closed, once; then as `pass`
    move      all connections are closed, and those that come lead to another server, at `url`; as `pass`
    errors    (Redis) each command is answered with an error, and goes nowhere
    lose      (Postgres) of the statements that `pattern` finds, the `share` loses its answer: the server has done what
              was asked, and the connection is gone. `before`: the statement itself is lost.
    lose-verbs
              (Postgres) of each verb (`faults.verbs`) the first so many `times` whose commit is asked for
    told      nothing changes

The answer tells of each verb how often its was lost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import sys
from collections import Counter, deque
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from faults.verbs import Session, Spoken

#: What a Redis that is in trouble says.
ERRORS = itertools.cycle([
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-MISCONF Errors writing to the AOF file\r\n",
    b"-ERR out of order\r\n",
])  # fmt: skip

#: Postgres is ready for the next query: the end of an answer.
READY = b"Z\x00\x00\x00\x05"


class Gate:
    """One server, what is done to its traffic, and who is connected."""

    def __init__(self, url: str) -> None:
        self.clients: set[Client] = set()
        self.order: dict[str, Any] = {}
        self.chance = random.Random(0)
        self.spoken = Spoken()
        self.lost: Counter[str] = Counter()
        self.tell({"mode": "move", "url": url})

    def tell(self, order: dict[str, Any]) -> None:
        if order["mode"] == "told":
            return
        self.order, self.mode = order, order["mode"]
        if self.mode == "move":
            self.address = urlsplit(order["url"])
            self.port = self.address.port or 0
        if self.mode == "lose-verbs":
            self.lost.clear()
        self.chance.seed(order.get("seed", 0))
        self.pattern = re.compile(order.get("pattern", "").encode(), re.IGNORECASE)
        if self.mode in ("cut", "move"):
            for client in list(self.clients):
                client.end()
        for client in list(self.clients):
            client.thaw()

    async def connect(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        folder = re.search(r"host=([^&]*)", self.address.query)
        try:
            if folder is None:
                await loop.create_connection(lambda: Server(client), str(self.address.hostname), self.port)
            else:
                await loop.create_unix_connection(lambda: Server(client), f"{unquote(folder[1])}/.s.PGSQL.5432")
        except OSError:
            client.end()

    def is_lost(self, said: bytes, session: Session) -> bool:
        """Whether this statement is one of those that are lost."""
        if said[:1] != b"Q":
            return False
        verbs = session.committed(said[5:12_000])
        if self.mode == "lose-verbs":
            fresh = {verb for verb in verbs if self.lost[verb] < int(self.order["times"])}
            self.lost.update(verbs if fresh else ())
            return bool(fresh)
        if self.mode != "lose" or not self.pattern.search(said[5:4000]):
            return False
        return self.chance.random() < float(self.order["share"])


class Client(asyncio.Protocol):
    """A connection of a process, and the one to the server that serves it."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.server: asyncio.Transport | None = None
        self.early: list[bytes] = []
        self.held: list[tuple[bool, bytes]] = []
        #: What comes late, by whether it goes to the server: what comes after it never overtakes it.
        self.late: dict[bool, deque[bytes]] = {True: deque(), False: deque()}
        self.losing = False
        self.commands = b""
        self.session = Session(gate.spoken)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.gate.clients.add(self)
        self.connecting = asyncio.ensure_future(self.gate.connect(self))

    def connection_lost(self, _: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        self.gate.clients.discard(self)
        self.transport.abort()
        if self.server is not None:
            self.server.abort()

    def connected(self, server: asyncio.Transport) -> None:
        self.server = server
        if self not in self.gate.clients:
            server.abort()
        for data in self.early:
            server.write(data)
        self.early.clear()

    def data_received(self, data: bytes) -> None:
        if self.gate.mode == "errors":
            self.transport.write(b"".join(next(ERRORS) for _ in range(self._commands(data))))
        elif self.gate.is_lost(data, self.session):
            if self.gate.order.get("before"):
                self.end()
            else:
                self.losing = True
                self.pass_on(True, data)
        else:
            self.pass_on(True, data)

    def answered(self, data: bytes) -> None:
        if not self.losing:
            self.pass_on(False, data)
        elif data[-6:-1] == READY:
            self.end()

    def pass_on(self, to_server: bool, data: bytes) -> None:
        if self.gate.mode == "freeze":
            self.held.append((to_server, data))
        elif self.gate.mode == "reset" and self.gate.chance.random() < self.gate.order["share"]:
            self.end()
        elif self.gate.mode in ("slow", "reset") or self.late[to_server]:
            self.late[to_server].append(data)
            asyncio.get_running_loop().call_later(self.gate.order.get("seconds", 0.0), self.write_next, to_server)
        else:
            self.write(to_server, data)

    def write_next(self, to_server: bool) -> None:
        if self in self.gate.clients:
            self.write(to_server, self.late[to_server].popleft())

    def thaw(self) -> None:
        held, self.held = self.held, []
        for to_server, data in held:
            self.pass_on(to_server, data)

    def write(self, to_server: bool, data: bytes) -> None:
        if not to_server:
            self.transport.write(data)
        elif self.server is None:
            self.early.append(data)
        else:
            self.server.write(data)

    def _commands(self, data: bytes) -> int:
        """How many commands of Redis' protocol are complete by now; what is begun waits for its end."""
        self.commands += data
        found = 0
        while (size := _command(self.commands)) is not None:
            self.commands = self.commands[size:]
            found += 1
        return found


def _command(data: bytes) -> int | None:
    """The bytes of the first command, if it is complete."""
    line, newline, _ = data.partition(b"\r\n")
    if not newline:
        return None
    if not line.startswith(b"*"):
        return len(line) + 2
    at = len(line) + 2
    for _ in range(int(line[1:])):
        size, newline, _ = data[at:].partition(b"\r\n")
        if not newline:
            return None
        at += len(size) + 2 + int(size[1:]) + 2
    return at if at <= len(data) else None


class Server(asyncio.Protocol):
    def __init__(self, client: Client) -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client.connected(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self.client.answered(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.client.end()


async def main(urls: dict[str, str]) -> None:
    gates = {name: Gate(url) for name, url in urls.items()}
    loop = asyncio.get_running_loop()
    for gate in gates.values():
        door = await loop.create_server(lambda gate=gate: Client(gate), "127.0.0.1", 0)  # type: ignore[misc]
        print(door.sockets[0].getsockname()[1], flush=True)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        gate = gates[order["of"]]
        gate.tell(order)
        print(json.dumps(gate.lost), flush=True)


if __name__ == "__main__":
    asyncio.run(main(dict(zip(("redis", "postgres"), sys.argv[1:], strict=True))))
