"""A shortage of file descriptors in a process that runs its worker's tasks itself: it passes, or it is a leak."""

from __future__ import annotations

import logging

from celeriac.run import descriptors, shared
from celeriac.run.places import places
from celeriac.store.connections import Database

logger = logging.getLogger(__name__)


class Shortage:
    """The state of a shortage. `most`: how many tasks have run at once since it began; None: there is none.
    `has_closed`: the engine's own idle connections have been closed since.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.most: int | None = None
        self.has_closed = False

    def look(self) -> str | None:
        """Return why no task may begin; None: there are enough descriptors."""
        if not descriptors.has_few():
            self.most, self.has_closed = None, False
            return None
        running = _running()
        reason = f"Hardly a file descriptor is left of {descriptors.limit()} (ulimit -n), {running} tasks run"
        self.most = max(self.most or 0, running)
        return reason

    def is_leak(self) -> bool:
        """Return whether descriptors leak: half of the tasks have ended, and still hardly any descriptor is left. The
        engine's own idle connections are closed first; then the next check decides.
        """
        if self.most is None or _running() > self.most // 2:
            return False
        if not self.has_closed:
            self.has_closed = True
            self.database.close_idle()
            return False
        return descriptors.has_few()


def _running() -> int:
    """Return how many tasks run in this process; 0 in the parent of a pool of processes."""
    if shared.in_flight is not None:
        return len(shared.in_flight())
    return sum(place.current is not None for place in places.taken())
