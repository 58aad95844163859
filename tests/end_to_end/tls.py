"""A proxy that offers TLS in front of a Postgres without it. Its certificate can be changed while it serves."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Length of a client's request for TLS, and the answer that grants it.
REQUEST, GRANTED = 8, b"S"


class Proxy:
    """Leads from `port` on 127.0.0.1 to a server's port there. `root`: what its clients have to trust."""

    def __init__(self, folder: Path, to: int) -> None:
        self.to, self.key, self.certificate = to, folder / "key.pem", folder / "certificate.pem"
        self.root = folder / "root.pem"
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.door.getsockname()[1]
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
        subprocess.run([*made, "-keyout", self.key, "-out", self.root], check=True, capture_output=True)
        self.certify(days=1)

    def certify(self, days: int) -> None:
        """Show who connects from now on a certificate that is over in so many days, and that they trust."""
        made = ["openssl", "x509", "-in", self.root, "-signkey", self.key, "-days", str(days), "-out", self.certificate]
        subprocess.run(made, check=True, capture_output=True)
        shutil.copy(self.certificate, self.root)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.certificate, self.key)

    def serve(self) -> None:
        while True:
            try:
                near, _ = self.door.accept()
            except OSError:
                return
            threading.Thread(target=self._lead, args=(near,), daemon=True).start()

    def _lead(self, near: socket.socket) -> None:
        with suppress(OSError), near:
            near.recv(REQUEST, socket.MSG_WAITALL)
            near.sendall(GRANTED)
            with (
                self.tls.wrap_socket(near, server_side=True) as veiled,
                socket.create_connection(("127.0.0.1", self.to)) as far,
            ):
                threading.Thread(target=_carry, args=(far, veiled), daemon=True).start()
                _carry(veiled, far)


def _carry(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            to.sendall(data)
        to.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(folder: Path, to: int) -> Iterator[Proxy]:
    made = Proxy(folder, to)
    threading.Thread(target=made.serve, daemon=True).start()
    try:
        yield made
    finally:
        made.door.shutdown(socket.SHUT_RDWR)
        made.door.close()
