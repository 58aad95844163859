"""What stands between a server and those who connect to it, and may be cut."""

from __future__ import annotations

import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from sqlalchemy import make_url


class Relay:
    """Postgres at another address, a socket in a folder of its own: `url`. To be reached between `start` and `stop`."""

    def __init__(self, url: str) -> None:
        self.server = make_url(url)
        self.folder = Path(tempfile.mkdtemp(prefix="relay"))
        self.path = self.folder / ".s.PGSQL.5432"
        query = {**self.server.query, "host": str(self.folder), "port": "5432"}
        self.url = self.server.set(host=None, port=None, query=query).render_as_string(hide_password=False)
        self.listener: socket.socket | None = None
        self.ends: list[socket.socket] = []
        self.lock = Lock()

    def start(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.folder.chmod(0o755)
        self.path.chmod(0o777)
        self.listener.listen(64)
        Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def stop(self) -> None:
        """Whoever is connected is not any more, and nobody gets a connection."""
        with self.lock:
            listener, self.listener = self.listener, None
            ends, self.ends = self.ends, []
        if listener is None:
            return
        self.path.unlink()
        for one in (listener, *ends):
            _end(one)

    def close(self) -> None:
        self.stop()
        self.folder.rmdir()

    def _accept(self, listener: socket.socket) -> None:
        while self.listener is listener:
            with suppress(OSError):  # one that comes to nothing is no end of the others
                self._join(listener, listener.accept()[0])

    def _join(self, listener: socket.socket, inner: socket.socket) -> None:
        try:
            outer = self._connected()
        except OSError:
            _end(inner)
            raise
        with self.lock:
            if is_open := self.listener is listener:
                self.ends += [inner, outer]
        if not is_open:
            _end(inner)
            _end(outer)
            return
        for pair in ((inner, outer), (outer, inner)):
            Thread(target=_carry, args=pair, daemon=True).start()

    def _connected(self) -> socket.socket:
        query: Any = self.server.query
        port = int(self.server.port or query.get("port", 5432))
        host = self.server.host or query["host"]
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        outer = socket.socket(socket.AF_UNIX)
        outer.connect(f"{host}/.s.PGSQL.{port}")
        return outer


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while some := source.recv(65_536):
            target.sendall(some)
    _end(source)
    _end(target)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
