"""The service that opens pages for workers: Chromium, in a place that holds nothing a page could be after.

    python -m tasks.renderer           listens at BROWSER_LISTEN for whoever has BROWSER_TOKEN
    python -m tasks.renderer check     whether it does, and has a program to start

It has no credential but that token, and refuses to start beside any other. The words of a connection: remote_browser.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from celeriac import ConfigurationError
from tasks.browser import Browser, PageFailed, find
from tasks.chromium import BrowserEnded, NoBrowser, Reader
from tasks.environment import require, required, whole
from tasks.remote_browser import LONGEST_ORDER, Busy, Lines, RemoteBrowser, failure

logger = logging.getLogger("tasks.renderer")

#: Where it listens, and the port that workers know.
LISTEN = "127.0.0.1:8700"

#: Names of variables that a page is to find nothing behind. The token lets whoever has it open pages, and no more.
SECRETS = re.compile(r"^(DATABASE|REDIS|\w+_DATABASE)_URL$|^SMTP_|PASSWORD|TOKEN|SECRET|_KEY$")
OWN = "BROWSER_TOKEN"

#: Seconds for an order to be said, and the most that one may take.
TO_SAY, LONGEST = 10.0, 600.0


class Renderer(ThreadingTCPServer):
    """Listens until `shutdown`. As many orders at once as there may be browsers; each has one for itself meanwhile."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, where: tuple[str, int], token: str, browsers: int) -> None:
        self.token, self._free = token, threading.Semaphore(browsers)
        self._idle: list[Browser] = []
        super().__init__(where, _Connection)

    @contextmanager
    def browser(self, program: str) -> Iterator[Browser]:
        """One of them, the last that was used first: the others close. Raises Busy."""
        if not self._free.acquire(timeout=TO_SAY):
            raise Busy("all browsers are at work")
        try:
            browser = self._idle.pop()
        except IndexError:
            browser = Browser(program)
        try:
            yield browser
        finally:
            self._idle.append(browser)
            self._free.release()

    def server_close(self) -> None:
        super().server_close()
        while self._idle:
            self._idle.pop().close()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """A connection that breaks is the worker's affair, which has it fail; a line of the log says what did."""
        logger.warning("an order broke off: %s", sys.exc_info()[1])


class _Connection(BaseRequestHandler):
    server: Renderer

    def handle(self) -> None:
        lines = Lines(self.request, LONGEST_ORDER)
        order = lines.receive(TO_SAY)
        if not hmac.compare_digest(str(order.get("token")).encode(), self.server.token.encode()):
            lines.send(failed=NoBrowser.__name__, why="BROWSER_TOKEN is not the browser's")
            return
        with suppress(OSError):  # the worker is gone: what it would have heard is nobody's
            try:
                self._obey(lines, order, min(float(order["seconds"]), LONGEST))
            except (PageFailed, NoBrowser) as failed:
                lines.send(**failure(failed))

    def _obey(self, lines: Lines, order: Mapping[str, Any], seconds: float) -> None:
        program, give_up = find(), time.monotonic() + seconds
        if order["order"] == "find":
            lines.send(done=None)
            return
        with self.server.browser(program) as browser:
            if order["order"] == "pictures":
                taken = browser.pictures(order["url"], order["viewports"], give_up - time.monotonic())
                lines.send(done={name: base64.b64encode(picture).decode() for name, picture in taken.items()})
            else:
                work = _Visit(lines, give_up)
                browser.order(lambda chromium: chromium.visit(order["proxy"], give_up, work)).result()


class _Visit:
    """Reads the pages that are named, one after the other, until the worker goes."""

    def __init__(self, lines: Lines, give_up: float) -> None:
        self._lines, self._give_up = lines, give_up

    def __call__(self, pages: Reader) -> None:
        self._lines.send(ready=True)
        with suppress(ConnectionError):
            while True:
                wanted = self._receive()
                seconds = {} if wanted["seconds"] is None else {"seconds": float(wanted["seconds"])}
                pages.texts(wanted["url"], wanted["selector"], self._is_wanted, **seconds)

    def _is_wanted(self, texts: list[str]) -> bool:
        self._lines.send(texts=texts)
        return bool(self._receive()["wanted"])

    def _receive(self) -> dict[str, Any]:
        try:
            return self._lines.receive(self._give_up - time.monotonic())
        except TimeoutError as error:
            raise BrowserEnded("the visit's time is over") from error


def from_environ(environ: Mapping[str, str] = os.environ) -> Renderer:
    """Raises ConfigurationError: also where there is anything in the environment that a page may not have."""
    too_much = sorted(name for name in environ if SECRETS.search(name) and environ[name] and name != OWN)
    require(not too_much, f"a browser opens pages of strangers: take {', '.join(too_much)} out of its environment")
    token = required(OWN, "a long random text, the same for the workers that ask", environ=environ)
    host, _, port = (environ.get("BROWSER_LISTEN") or LISTEN).rpartition(":")
    require(bool(host) and port.isdecimal(), "BROWSER_LISTEN must be host:port")
    browsers = whole("BROWSER_AT_ONCE", 8, at_least=1, at_most=1_000, environ=environ)
    return Renderer((host, int(port)), token, browsers)


def main(words: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s] %(message)s")
    try:
        if words == ["check"]:
            port = (os.environ.get("BROWSER_LISTEN") or LISTEN).rpartition(":")[2]
            RemoteBrowser(f"127.0.0.1:{port}", os.environ.get(OWN, "")).find()
            return 0
        find()
        server = from_environ()
    except (ConfigurationError, NoBrowser, PageFailed) as error:
        logger.error("%s", error)
        return 1
    logger.info("pages are opened at %s", json.dumps(server.server_address))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
