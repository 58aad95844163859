"""The service that opens pages for workers: Chromium, in a place that holds nothing a page could be after.

    python -m tasks.renderer           listens at BROWSER_LISTEN for whoever has BROWSER_TOKEN
    python -m tasks.renderer check     whether it does, and has a program to start

It has no credential but that token, and refuses to start beside a variable that is not known to be harmless. The words
of a connection: remote_browser.
"""

from __future__ import annotations

import base64
import hmac
import json
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, TypeVar

from celeriac import ConfigurationError
from tasks.browser import Browser, PageFailed, find
from tasks.chromium import CLOSING, BrowserEnded, NoBrowser, Reader
from tasks.environment import require, required, whole
from tasks.remote_browser import LONGEST_ORDER, Busy, Lines, RemoteBrowser, failure

logger = logging.getLogger("tasks.renderer")

T = TypeVar("T")

#: Where it listens, and the port that workers know.
LISTEN = "127.0.0.1:8700"

OWN = "BROWSER_TOKEN"

#: Names of variables behind which a page finds nothing: its own (the token lets whoever has it open pages, and no
#: more), the image's (GPG_KEY is whose signature its Python has), those of a shell and of the platform.
HARMLESS = re.compile(
    r"(BROWSER|CHROMIUM|PYTHON|LC|SSL_CERT|KUBERNETES_(SERVICE|PORT))(_\w+)?|PYTHON[A-Z0-9]+"
    r"|PIP_(NO_CACHE_DIR|DISABLE_PIP_VERSION_CHECK)|GPG_KEY"
    r"|PATH|HOME|HOSTNAME|LANG|LANGUAGE|TZ|TERM|USER|LOGNAME|SHELL|SHLVL|PWD|OLDPWD|TMPDIR|container|_"
)

#: Seconds for an order to be said or its answer to be taken; the most that one may take; for all of them at the end.
TO_SAY, LONGEST, DRAIN = 10.0, 600.0, 20.0

#: Seconds between two looks for a worker that has gone while its order is carried out.
LOOKS_EVERY = 0.5

#: Connections at once that have not shown the token.
UNKNOWN = 64


class Renderer(ThreadingTCPServer):
    """Listens until `shutdown`. As many orders at once as there may be browsers; each has one for itself meanwhile."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, where: tuple[str, int], token: str, browsers: int) -> None:
        self.token, self._browsers, self._free = token, browsers, threading.Semaphore(browsers)
        self.unknown = threading.Semaphore(UNKNOWN)
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

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.unknown.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def server_close(self) -> None:
        """Takes nothing new, and has DRAIN for what it is about."""
        super().server_close()
        give_up = time.monotonic() + DRAIN
        for _ in range(self._browsers):
            self._free.acquire(timeout=max(0.0, give_up - time.monotonic()))
        while self._idle:
            self._idle.pop().close()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """A connection that breaks is the worker's affair, which has it fail; a line of the log says what did."""
        logger.warning("an order broke off: %s", sys.exc_info()[1])


class _Connection(BaseRequestHandler):
    server: Renderer

    def handle(self) -> None:
        lines = Lines(self.request, LONGEST_ORDER, time.monotonic() + TO_SAY)
        order = self._signed_in(lines)
        if order is None:
            return
        lines.give_up = time.monotonic() + min(float(order["seconds"]), LONGEST)
        try:
            self._obey(lines, order, lines.give_up)
        except (PageFailed, NoBrowser) as failed:
            _answer(lines, **failure(failed))

    def _signed_in(self, lines: Lines) -> dict[str, Any] | None:
        """The order; None where there is none: a probe connects and goes, and whoever has another token is refused."""
        try:
            order = lines.receive()
        except ConnectionError:
            return None
        finally:
            self.server.unknown.release()
        if hmac.compare_digest(str(order.get("token")).encode(), self.server.token.encode()):
            return order
        _answer(lines, failed=NoBrowser.__name__, why="BROWSER_TOKEN is not the browser's")
        return None

    def _obey(self, lines: Lines, order: Mapping[str, Any], give_up: float) -> None:
        program = find()
        if order["order"] == "find":
            _answer(lines, done=None)
            return
        with self.server.browser(program) as browser:
            if order["order"] == "pictures":
                taken = self._carried_out(browser, browser.order(lambda chromium: chromium.pictures(
                    order["url"], order["viewports"], give_up - time.monotonic()
                )))  # fmt: skip
                _answer(lines, done={name: base64.b64encode(picture).decode() for name, picture in taken.items()})
            else:
                work = _Visit(lines)
                self._carried_out(
                    browser, browser.order(lambda chromium: chromium.visit(order["proxy"], give_up, work))
                )

    def _carried_out(self, browser: Browser, outcome: Future[T]) -> T:
        """What it comes to. Where the worker goes meanwhile, a visit has a moment to close; the rest is killed."""
        while not wait((outcome,), LOOKS_EVERY).done:
            if _is_gone(self.request) and not wait((outcome,), CLOSING).done:
                browser.kill()
        return outcome.result()


def _answer(lines: Lines, **what: Any) -> None:
    """It has what is left of the order's time, which may be over."""
    lines.give_up = max(lines.give_up, time.monotonic() + TO_SAY)
    lines.send(**what)


def _is_gone(connection: socket.socket) -> bool:
    """Whether the other end says no more, whatever it said before."""
    ends = select.poll()
    ends.register(connection, getattr(select, "POLLRDHUP", select.POLLHUP))
    return bool(ends.poll(0))


class _Visit:
    """Reads the pages that are named, one after the other, until the worker goes."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

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
            return self._lines.receive()
        except TimeoutError as error:
            raise BrowserEnded("the visit's time is over") from error


def too_much(environ: Mapping[str, str]) -> list[str]:
    """Names of what is set and may be something that a page is after."""
    return sorted(name for name in environ if environ[name] and not HARMLESS.fullmatch(name))


def from_environ(environ: Mapping[str, str] = os.environ) -> Renderer:
    """Raises ConfigurationError: also where there is anything in the environment that a page may not have."""
    more = too_much(environ)
    require(not more, f"a browser opens pages of strangers: take {', '.join(more)} out of its environment")
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
