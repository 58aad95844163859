"""A browser for each process of a worker, closed while it has nothing to do."""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread

from tasks.chromium import Chromium, NoBrowser, PageFailed, Viewports, find

__all__ = ["Browser", "NoBrowser", "PageFailed", "Viewports", "find", "pictures"]

#: Seconds without work after which Chromium is closed: it takes some hundred MB.
IDLE = 60.0


@dataclass(frozen=True)
class Order:
    url: str
    viewports: Viewports
    seconds: float
    pictures: Future[dict[str, bytes]] = field(default_factory=Future)


class Browser:
    """Chromium in a thread of its own.

    Playwright does not survive an exception that a signal (a time limit, a cancellation) raises amid its work. Here a
    signal meets the main thread, which only waits; it leaves this browser, which ends by itself within the page's time.
    """

    def __init__(self, program: str) -> None:
        self._chromium = Chromium(program)
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name="browser", daemon=True)
        self._thread.start()

    def pictures(self, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]:
        """See Chromium."""
        order = Order(url, viewports, seconds)
        self._orders.put(order)
        return order.pictures.result()

    def leave(self) -> None:
        """It ends as soon as it has done what it is about."""
        self._orders.put(None)

    def close(self) -> None:
        self.leave()
        self._thread.join()

    def _serve(self) -> None:
        while (order := self._next()) is not None:
            try:
                order.pictures.set_result(self._chromium.pictures(order.url, order.viewports, order.seconds))
            except BaseException as error:
                order.pictures.set_exception(error)
        self._chromium.stop()

    def _next(self) -> Order | None:
        try:
            return self._orders.get(timeout=IDLE if self._chromium.runs else None)
        except Empty:
            self._chromium.stop()
            return self._orders.get()


_of_process: dict[int, Browser] = {}


def pictures(program: str, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]:
    """By this process's browser; see Chromium."""
    pid = os.getpid()
    if pid not in _of_process:
        _of_process[pid] = Browser(program)
    try:
        return _of_process[pid].pictures(url, viewports, seconds)
    except (PageFailed, NoBrowser):
        raise
    except BaseException:
        _of_process.pop(pid).leave()
        raise
