"""The watch over beat's ticks: a Postgres that is connected and does not answer would hang a tick for ever."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from celeriac.store.connections import Database
from celeriac.worker.pulse import FRESH
from celeriac.worker.watchdog import shut_sockets

logger = logging.getLogger(__name__)

#: Seconds that a step of a tick may hang: fewer than the loop may stand still, so that an outage does not get beat
#: restarted.
LIMIT = FRESH / 2


class HasDatabase(Protocol):
    """The app, as far as the watch uses it."""

    @property
    def database(self) -> Database: ...


class Ticks(Protocol):
    """A scheduler: whether a tick runs, when it last advanced (monotonic seconds), and whether it has ended."""

    ticking: bool
    moved_at: float
    closed: threading.Event

    @property
    def app(self) -> HasDatabase: ...


class ScheduleWatch(threading.Thread):
    """Ends the connections of a tick that hangs: the tick fails, and the next one connects anew.

    Passes and sweeps beside it hang in the same way and fail, too; they run again at their next instant.
    """

    def __init__(self, scheduler: Ticks) -> None:
        super().__init__(name="celeriac-beat-watch", daemon=True)
        self.scheduler = scheduler

    def run(self) -> None:
        let_go = 0.0
        while not self.scheduler.closed.wait(LIMIT / 16):
            now = time.monotonic()
            if self.scheduler.ticking and now - max(self.scheduler.moved_at, let_go) > LIMIT:
                logger.error("A tick of beat has waited for Postgres for %g s; dropping its connections", LIMIT)
                let_go = now
                shut_sockets(self.scheduler.app.database)
