"""The watch over beat's ticks: a Postgres that is there and does not answer would hang a tick for ever."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from celeriac.worker.pulse import FRESH
from celeriac.worker.watchdog import shut_sockets

if TYPE_CHECKING:
    from celeriac.schedules.beat import Scheduler

logger = logging.getLogger(__name__)

#: Seconds a step of a tick may hang: less than its loop may stand still for, so that no outage has beat restarted.
LIMIT = FRESH / 2


class Watch(threading.Thread):
    """Ends the connections of a tick that hangs: the tick fails, and the next one connects anew.

    What runs beside it hangs as well, or runs again at its next instant.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(name="celeriac-beat-watch", daemon=True)
        self.scheduler = scheduler

    def run(self) -> None:
        let_go = 0.0
        while not self.scheduler.closed.wait(LIMIT / 16):
            now = time.monotonic()
            if self.scheduler.ticking and now - max(self.scheduler.moved_at, let_go) > LIMIT:
                logger.error("Postgres has not answered beat for %g s; dropping its connections", LIMIT)
                let_go = now
                shut_sockets(self.scheduler.app.database)
