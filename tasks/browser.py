"""A browser for each process of a worker, closed while it has nothing to do; or the one at `BROWSER_ADDRESS`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from tasks.chromium import Chromium, NoBrowser, PageFailed, Renders, Viewports, find
from tasks.remote_browser import RemoteBrowser, address

__all__ = ["Browser", "NoBrowser", "PageFailed", "Viewports", "done", "find", "found", "pictures"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Megabytes that a task with a browser takes of its worker: none where the browser is elsewhere.
MEMORY = None if address() else 400

#: Seconds without work after which Chromium is closed: it takes some hundred MB.
IDLE = 60.0


@dataclass(frozen=True)
class Order:
    act: Callable[[Chromium], Any]
    outcome: Future[Any] = field(default_factory=Future)


class Left(Exception):
    """This browser takes no more orders; another one does."""


class Browser:
    """Chromium in a thread of its own.

    Playwright does not survive an exception that a signal (a time limit, a cancellation) raises amid its work. Here a
    signal meets the main thread, which only waits; it leaves this browser, which ends by itself within the page's time.
    """

    def __init__(self, program: str) -> None:
        self._chromium = Chromium(program)
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._is_left, self._at_the_door = False, Lock()
        self._thread = Thread(target=self._serve, name="browser", daemon=True)
        self._thread.start()

    def order(self, act: Callable[[Chromium], T]) -> Future[T]:
        """What `act` comes to in the browser's thread; begun, it goes on to its end whatever becomes of the caller.

        Raises Left.
        """
        order = Order(act)
        with self._at_the_door:
            if self._is_left:
                raise Left
            self._orders.put(order)
        return order.outcome

    def kill(self) -> None:
        """What it has begun fails; the next order starts it again. See Chromium."""
        self._chromium.kill()

    def leave(self) -> None:
        """It ends as soon as it has done what was ordered until here."""
        with self._at_the_door:
            self._is_left = True
            self._orders.put(None)

    def close(self) -> None:
        self.leave()
        self._thread.join()

    def _serve(self) -> None:
        while (order := self._next()) is not None:
            if not order.outcome.set_running_or_notify_cancel():
                continue
            try:
                order.outcome.set_result(order.act(self._chromium))
            except BaseException as error:
                order.outcome.set_exception(error)
        self._chromium.stop()

    def _next(self) -> Order | None:
        try:
            return self._orders.get(timeout=IDLE if self._chromium.runs else None)
        except Empty:
            self._chromium.stop()
            return self._orders.get()


_of_process: dict[int, Browser] = {}


def found() -> str:
    """The program. Raises NoBrowser, of which the process's log tells once."""
    with _telling():
        return _remote().find() if address() else find()


def _remote() -> RemoteBrowser:
    if not os.environ.get("BROWSER_TOKEN"):
        raise NoBrowser("BROWSER_ADDRESS is set and BROWSER_TOKEN is not: give the browser's")
    return RemoteBrowser(address(), os.environ["BROWSER_TOKEN"])


def pictures(program: str, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]:
    """By this process's browser; see Chromium."""
    return done(program, lambda chromium: chromium.pictures(url, viewports, seconds))


def done(program: str, act: Callable[[Renders], T]) -> T:
    """By the browser elsewhere, if there is one: its connection ends with the caller. Or by this process's: whoever is
    interrupted amid it leaves it to end by itself; the next one has another.

    Raises NoBrowser, as `found`, and what `act` raises.
    """
    if address():
        with _telling():
            return act(_remote())
    browser, outcome = _ordered(program, act)
    try:
        with _telling():
            return outcome.result()
    except BaseException:
        if not (outcome.cancel() or outcome.done()):
            _leave(browser)
        raise


def _ordered(program: str, act: Callable[[Chromium], T]) -> tuple[Browser, Future[T]]:
    """Another thread may leave the browser between the two."""
    while True:
        browser = _browser(program)
        try:
            return browser, browser.order(act)
        except Left:
            _leave(browser)


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except NoBrowser as missing:
        _say_once(os.getpid(), str(missing), missing.retry_after)
        raise


@cache
def _say_once(_pid: int, why: str, retry_after: float) -> None:
    logger.warning("tasks wait for a browser, looking every %g s: %s", retry_after, why)


def _browser(program: str) -> Browser:
    pid = os.getpid()
    if pid not in _of_process:
        _of_process[pid] = Browser(program)
    return _of_process[pid]


def _leave(browser: Browser) -> None:
    if _of_process.get(os.getpid()) is browser:
        del _of_process[os.getpid()]
    browser.leave()
