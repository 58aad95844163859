"""The server's socket: many may wait to be accepted, and few are accepted at a time.

asyncio takes one number for both. Taking many at once, it has them all open before one of them is counted, past the
files it may open, and then accepts nobody for a second; with a short queue the system drops who comes, to try again
after a second.
"""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from socket import socket

import uvicorn

#: Connections accepted before any of them is looked at.
AT_ONCE = 16

#: How many wait to be accepted; the system may have a lower limit (`net.core.somaxconn`).
WAITING = 4096


class Listener(uvicorn.Server):
    """Accepts as its configuration's `backlog` says, with room for `WAITING` more."""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in (one for server in self.servers for one in server.sockets):
            with closing(listening.dup()) as same:
                same.listen(WAITING)


def run(config: uvicorn.Config) -> None:
    """Until it is told to end; exits with status 3 if it cannot start."""
    listener = Listener(config)
    with suppress(KeyboardInterrupt):
        listener.run()
    if not listener.started:
        sys.exit(3)
