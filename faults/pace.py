"""Pace: one way of calling, as often as it is told to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

#: What a way is late it makes up for, but for no more than this (seconds): no outage is.
LATE = 0.2

#: Seconds until a way that was refused tries again.
REFUSED_FOR = 0.1


class Way(threading.Thread):
    """`share`: of all calls. `refused` hears of what a call raised."""

    def __init__(self, call: Callable[[], None], share: float, refused: Callable[[str, Exception], None]) -> None:
        super().__init__(name=call.__name__, daemon=True)
        self.call, self.share, self.refused = call, share, refused
        self.rate = 0.0
        self.is_resting = threading.Event()
        self.changed = threading.Event()

    def go(self, rate: float) -> None:
        """So many calls a second from now on, of all ways together; with 0 it rests once its call is over."""
        self.is_resting.clear()
        self.rate = rate
        self.changed.set()

    def run(self) -> None:
        due = 0.0
        while True:
            rate = self.rate * self.share
            if rate <= 0:
                self.is_resting.set()
            if self.changed.wait(None if rate <= 0 else max(0.0, due - time.monotonic())):
                self.changed.clear()
                due = time.monotonic() + random.random() / 10
            elif rate > 0:
                due = max(due, time.monotonic() - LATE) + 1 / rate
                self._try()

    def _try(self) -> None:
        try:
            self.call()
        except Exception as error:
            self.refused(self.name, error)
            time.sleep(REFUSED_FOR)
