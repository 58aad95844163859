"""Write heartbeats with samples beside them: one a minute, and one more if a back-off begins within it."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection

from celeriac.run import lease
from celeriac.run.samples import backoff, sample

#: How often (seconds) a sample is written.
EVERY = 60.0


class Sampler:
    """The samples of one worker. A heartbeat without a sample to write costs nothing more."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._last: tuple[float, bool] | None = None

    def report(self, connection: Connection, worker: lease.WorkerState) -> str | None:
        """Write the worker's heartbeat and return its status now, as `lease.report` does."""
        minute, backs_off = self.clock() // EVERY, backoff(worker.resources) is not None
        if self._last is None or self._last[0] != minute or (backs_off and not self._last[1]):
            sample(connection, worker.worker_id, worker.resources)
            self._last = (minute, backs_off)
        return lease.report(connection, worker)
