"""A private Valkey on a port of the loopback interface. It saves nothing, because it only carries tickets.

Every user of the machine can reach that port, so the server requires a password. It is passed by standard input and
kept in a file that only the caller can read: neither the list of processes nor the server's own folder shows it.
"""

import os
import secrets
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO

from celeriac.local.errors import LocalStackError
from celeriac.local.server import Server, first_number
from celeriac.local.wheels import valkey_program

HOST = "127.0.0.1"
PORTS_TO_TRY = 10
PID_FILE = "valkey.pid"


class ValkeyServer(Server):
    name = "Valkey"
    farewell = signal.SIGTERM

    def __init__(self, folder: Path, port: int | None = None) -> None:
        super().__init__(folder)
        self.home = self.folder / "data"
        self.port = port
        self._last_port = self.folder / "port"

    @cached_property
    def password(self) -> str:
        """The password of this folder's server, made at the first start and used at each."""
        file = self.folder / "password"
        if not file.exists():
            unfinished = file.with_suffix(".unfinished")
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
                written.write(secrets.token_urlsafe(24))
            unfinished.replace(file)
        return file.read_text()

    @property
    def url(self) -> str:
        if self.port is None:
            raise LocalStackError("Valkey has no port yet: call start() first.")
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}{HOST}:{self.port}/0"

    def _start(self) -> None:
        self.account.make_folder(self.home)
        self._end_leftover(self.home / PID_FILE, self.home)
        if self.port is None:
            self.port = self._launch_on_free_port()
        else:
            self._launch_on(self.port)

    def _launch_on_free_port(self) -> int:
        for port in self._candidates():
            try:
                self._launch_on(port)
                self._last_port.write_text(str(port))
                return port
            except LocalStackError:
                if is_free(port):
                    raise
        raise self._failure(f"found its port taken {PORTS_TO_TRY} times")

    def _candidates(self) -> Iterator[int]:
        """Yield ports to try: the last one first, so that processes that know it find this server again."""
        last = first_number(self._last_port)
        if last is not None and is_free(last):
            yield last
        for _ in range(PORTS_TO_TRY):
            yield free_port()

    def _launch_on(self, port: int) -> None:
        self._launch(self._command(port), self.home, lambda pid: self._answers(port, pid))

    def _program(self) -> Path:
        return valkey_program(self.account)

    def _command(self, port: int) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(port),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "pidfile": PID_FILE,
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(self._program()), "-", *options]

    def _stdin(self) -> IO[bytes]:
        settings = tempfile.TemporaryFile()  # noqa: SIM115 - whoever starts the program closes it
        settings.write(f'requirepass "{self.password}"\nmasterauth "{self.password}"\n'.encode())
        settings.seek(0)
        return settings

    def _answers(self, port: int, pid: int) -> bool:
        """Return whether this server answers, and not another one that took the port first."""
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(f"AUTH {self.password}\r\nINFO server\r\n".encode())
            return any(line == f"process_id:{pid}\r\n".encode() for line in connection.makefile("rb"))
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0
