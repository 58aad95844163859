"""The server's socket: many connections may wait to be accepted, and few are accepted at a time.

asyncio has one number for both. If it accepted many at once, they could exceed the limit of open files before any is
counted, and then it accepts nobody for a second. With a short queue the system drops new connections, whose clients try
again after a second.
"""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from socket import socket

import uvicorn

#: Connections accepted before any of them is handled.
AT_ONCE = 16

#: Maximum number of connections that wait to be accepted; the system's limit may be lower (`net.core.somaxconn`).
WAITING = 4096


class Listener(uvicorn.Server):
    """A server that accepts `backlog` connections (its configuration's) at a time, while `WAITING` may wait."""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in (one for server in self.servers for one in server.sockets):
            with closing(listening.dup()) as same:
                same.listen(WAITING)


def run(config: uvicorn.Config) -> None:
    """Serve until a signal ends it. Exit with status 3 if it cannot start."""
    listener = Listener(config)
    with suppress(KeyboardInterrupt):
        listener.run()
    if not listener.started:
        sys.exit(3)
