"""Heartbeats with samples beside them: one a minute, and one more where a back-off begins within it."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection

from celeriac.run import lease
from celeriac.run.samples import backoff, sample

#: How often (seconds).
EVERY = 60.0


class Sampler:
    """Of one worker. A heartbeat that has no sample to write costs nothing more."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._last: tuple[float, bool] | None = None

    def report(self, connection: Connection, worker: lease.WorkerState) -> str | None:
        """The worker's heartbeat; the status it has now, as `lease.report`."""
        minute, backs_off = self.clock() // EVERY, backoff(worker.resources) is not None
        if self._last is None or self._last[0] != minute or (backs_off and not self._last[1]):
            sample(connection, worker.worker_id, worker.resources)
            self._last = (minute, backs_off)
        return lease.report(connection, worker)
