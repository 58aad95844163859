"""The tally: a process counts how its tasks ended, and writes the counts once a second."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence

from sqlalchemy.exc import DBAPIError

from celeriac.run.run import Run
from celeriac.settle.counts import Counts, count
from celeriac.store.connections import Database
from celeriac.store.states import COMPLETED, FAILED

logger = logging.getLogger(__name__)

#: Seconds between two writes.
EVERY = 1.0


class Tally:
    """The counts of one process. What it has not written when it ends is lost."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._counts: dict[str, Counts] = {}
        self._written = time.monotonic()
        self._later: threading.Timer | None = None

    def count(self, role: str, runs: Sequence[Run], seconds: float) -> None:
        """Count these runs, as far as they have been settled; `seconds`: how long they took in all."""
        if not runs:
            return
        ended = Counter((run.became, bool(run.task.retry_count or run.task.tries)) for run in runs)
        again = {status: ended[status, True] for status in (COMPLETED, FAILED)}
        every = {status: n + ended[status, False] for status, n in again.items()}
        some = Counts(every[COMPLETED], every[FAILED], again[COMPLETED], again[FAILED], seconds)
        with self._lock:
            self._counts[role] = _sum(self._counts.get(role, Counts()), some)

    def write_in_time(self) -> None:
        """Write now, if the last time is long enough ago; else soon, whether another ticket comes or not."""
        if time.monotonic() - self._written > EVERY:
            self.write()
        elif self._later is None:
            self._later = threading.Timer(EVERY, self.write)
            self._later.daemon = True
            self._later.start()

    def write(self) -> None:
        """Write the counts; if Postgres is away, the next call does."""
        with self._lock:
            counts, self._counts, self._later, self._written = self._counts, {}, None, time.monotonic()
        if not counts:
            return
        try:
            with self._database.statement() as connection:
                count(connection, counts)
        except DBAPIError as error:
            logger.info("Outcomes of tasks are counted later: %s", error)
            with self._lock:
                for role, some in counts.items():
                    self._counts[role] = _sum(self._counts.get(role, Counts()), some)


def _sum(one: Counts, other: Counts) -> Counts:
    return Counts(*(getattr(one, name) + getattr(other, name) for name in Counts.__slots__))
