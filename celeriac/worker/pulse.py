"""The pulse: whether the worker's loop goes round, for whoever may restart it. It asks neither Redis nor Postgres."""

from __future__ import annotations

import math
import time
from typing import Any

from celery import bootsteps

#: How often (seconds) the loop stamps, and how old a stamp of a loop that goes round may be.
EVERY, FRESH = 1.0, 60.0


class Pulse:
    """Of this process' consumer. `consuming`: it takes tickets. `ends`: when (monotonic) a drain should be over."""

    def __init__(self) -> None:
        self.consuming = False
        self.ends = math.inf
        self._stamped = 0.0

    def stamp(self) -> None:
        self._stamped = time.monotonic()

    def is_live(self) -> bool:
        """A worker that waits for Redis or Postgres, or drains, is. One whose loop stands still, or whose drain goes on
        for too long, is not.
        """
        return not self.overdue() and (not self.consuming or time.monotonic() - self._stamped < FRESH)

    def overdue(self) -> float:
        """For how long (seconds) it should have ended; 0 while it may go on."""
        return max(0.0, time.monotonic() - self.ends)

    def is_ready(self) -> bool:
        """Whether it takes tickets."""
        return self.consuming and self.is_live()


#: A process has one worker.
PULSE = Pulse()


class PulseStep(bootsteps.StartStopStep):
    """Stamps from the consumer's own loop. A pool without one (threads) stamps from its timer's thread."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    #: None: a connection was lost before this was started.
    timer: Any = None

    def start(self, c: Any) -> None:
        PULSE.stamp()
        PULSE.consuming = True
        self.timer = c.timer.call_repeatedly(EVERY, PULSE.stamp)

    def stop(self, c: Any) -> None:  # noqa: ARG002 - Celery's signature
        PULSE.consuming = False
        if self.timer is not None:
            self.timer.cancel()
