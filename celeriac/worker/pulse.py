"""The heartbeat of the worker's loop, for a supervisor that may restart the worker; without Redis and Postgres."""

from __future__ import annotations

import math
import time
from typing import Any

from celery import bootsteps

#: Seconds between two stamps of the loop, and the maximum age of the last stamp of a live loop.
EVERY, FRESH = 1.0, 60.0


class Pulse:
    """The state of this process's consumer. `ends`: when (monotonic) its drain should be over."""

    def __init__(self) -> None:
        self.consuming = False
        self.ends = math.inf
        self._stamped = 0.0

    def stamp(self) -> None:
        self._stamped = time.monotonic()

    def is_live(self) -> bool:
        """Return False if the loop stands still or the drain takes too long. A worker that waits for Redis or Postgres,
        or drains, is live.
        """
        return not self.overdue() and (not self.consuming or time.monotonic() - self._stamped < FRESH)

    def overdue(self) -> float:
        """Return how long ago (seconds) the worker should have ended; 0 while it may go on."""
        return max(0.0, time.monotonic() - self.ends)

    def is_ready(self) -> bool:
        """Return whether it takes tickets."""
        return self.consuming and self.is_live()


#: The pulse of this process: a process has one worker.
PULSE = Pulse()


class PulseStep(bootsteps.StartStopStep):
    """Stamps from the consumer's own loop; in a pool without a loop (threads), from its timer's thread."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    #: None if the connection was lost before this step started.
    timer: Any = None

    def start(self, c: Any) -> None:
        PULSE.stamp()
        PULSE.consuming = True
        self.timer = c.timer.call_repeatedly(EVERY, PULSE.stamp)

    def stop(self, c: Any) -> None:  # noqa: ARG002 - Celery's signature
        PULSE.consuming = False
        if self.timer is not None:
            self.timer.cancel()
