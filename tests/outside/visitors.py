"""What visits go through and what they visit: a sandbox with proxies, whoever leads them astray."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import sandbox
from tasks.webmenus import WebMenus
from tests.processes import Rows

OWN = "127.0.0.1"


class Outside:
    """The sandbox with three proxies, the pool that has them, and the platform whose pages are visited."""

    def __init__(self, running: sandbox.Sandbox, rows: Rows) -> None:
        self.running, self.rows, self.proxies = running, rows, running.proxies
        self.pages = running.webmenus
        self.menus = WebMenus(running.environ()["WEBMENUS_BASE_URL"])

    def begin(self) -> None:
        """A store `az-1`; all proxies are well and in the pool."""
        self.running.faults.reset()
        self.pages.clear()
        self.pages.open_stores(1, products=2)
        self.rows("DELETE FROM proxies")
        for proxy in self.proxies:
            proxy.leaves_by, proxy.is_broken = proxy.address, False
            self.rows("SELECT add_proxy(:url, :address)", url=proxy.url, address=proxy.address)

    @property
    def store(self) -> str:
        return self.pages.id_of("az-1")

    def read(self) -> int:
        """How many products the store's menu has."""
        return len(list(self.menus.products(self.store)))


def trickle(listening: socket.socket) -> None:
    """Until who asked has gone."""
    connection, _ = listening.accept()
    with connection, suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            connection.sendall(b"1")
            time.sleep(0.02)
