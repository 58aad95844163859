"""The guard: the servers' parent process, which lives while any process is joined.

Each member holds a connection to `guard.sock`. The kernel closes it however the member dies, and the guard stops the
servers when no connection is left. The lock on `guard.lock` ensures a single guard for a data directory: the process
that starts a guard takes the lock, and the guard inherits it.
"""

import argparse
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from celeriac.local.account import Account
from celeriac.local.errors import LocalStackError
from celeriac.local.folders import make_socket_folder, socket_folder
from celeriac.local.postgres import PostgresServer
from celeriac.local.server import Server
from celeriac.local.valkey import ValkeyServer

FIRST_MEMBER_PATIENCE = 5.0
ME = Account(os.geteuid(), os.getegid())


def socket_path(data_dir: Path) -> Path:
    return socket_folder(data_dir, ME) / "guard.sock"


class Guard:
    def __init__(self, servers: Mapping[str, Server], door: socket.socket, linger: float) -> None:
        self.servers = servers
        self.door = door
        self.linger = linger
        self.members: set[socket.socket] = set()
        self.selector = selectors.DefaultSelector()
        self.selector.register(door, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until no member is left."""
        patience = max(self.linger, FIRST_MEMBER_PATIENCE)
        while self.run_once(None if self.members else patience):
            patience = self.linger

    def run_once(self, patience: float | None) -> bool:
        """Answer all members with a request; return False if none came within `patience` seconds."""
        events = self.selector.select(patience)
        for key, _ in events:
            if key.fileobj is self.door:
                self._welcome()
            elif isinstance(key.fileobj, socket.socket):
                self._hear(key.fileobj)
        return bool(events)

    def close(self) -> None:
        self.door.close()
        for member in list(self.members):
            self._part_from(member)
        self.selector.close()
        self._stop_servers()

    def _welcome(self) -> None:
        try:
            member, _ = self.door.accept()
        except (BlockingIOError, ConnectionError):
            return
        self.members.add(member)
        self.selector.register(member, selectors.EVENT_READ)

    def _hear(self, member: socket.socket) -> None:
        try:
            request = member.recv(4096)
            if request:
                member.sendall(self._answer(request))
            else:
                self._part_from(member)
        except OSError:
            self._part_from(member)

    def _part_from(self, member: socket.socket) -> None:
        self.members.discard(member)
        self.selector.unregister(member)
        member.close()

    def _answer(self, request: bytes) -> bytes:
        try:
            reply = {name: self._url_of(name) for name, wanted in json.loads(request).items() if wanted}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": describe(error)}
            if len(self.members) == 1:
                self._stop_servers()
        return json.dumps(reply).encode() + b"\n"

    def _url_of(self, name: str) -> str:
        server = self.servers[name]
        server.start()
        return server.url

    def _stop_servers(self) -> None:
        with ExitStack() as stops:
            for server in self.servers.values():
                stops.callback(server.stop)


def describe(error: Exception) -> str:
    return str(error) if isinstance(error, LocalStackError) else f"{type(error).__name__}: {error}"


def listen(path: Path) -> socket.socket:
    """Listen on the guard's socket. The caller holds the lock, so an existing socket is a dead guard's."""
    path.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(path))
    door.listen(128)
    door.setblocking(False)
    return door


def shut(path: Path, data_dir: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent != data_dir:
        path.parent.rmdir()


def sign(lock: int) -> None:
    """Write this process's number into the lock file, for people and for tests."""
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())


def watch(data_dir: Path, door: socket.socket, linger: float) -> None:
    servers = {"postgres": PostgresServer(data_dir / "postgres"), "redis": ValkeyServer(data_dir / "valkey")}
    guard = Guard(servers, door, linger)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        guard.run()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shut(socket_path(data_dir), data_dir)
        guard.close()


def main() -> None:
    parser = argparse.ArgumentParser("celeriac.local.guard", description="Started by celeriac.local.join.")
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--linger", type=float, required=True, help="seconds to wait for the next member")
    parser.add_argument("--lock", type=int, required=True, help="file descriptor of the lock, taken")
    arguments = parser.parse_args()
    os.umask(0o077)
    path = socket_path(arguments.data_dir)
    if path.parent != arguments.data_dir:
        make_socket_folder(path.parent, ME)
    door = listen(path)
    if os.fork():
        # The socket listens, so the starting process may connect. The child goes on as the servers' parent.
        os._exit(0)
    os.set_inheritable(arguments.lock, False)
    sign(arguments.lock)
    with suppress(KeyboardInterrupt):
        watch(arguments.data_dir, door, arguments.linger)
    fcntl.flock(arguments.lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    main()
