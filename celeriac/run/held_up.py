"""Held up: log whose lock this process met, because nothing else shows that some of its work is delayed."""

from __future__ import annotations

import logging
import time

from celeriac import logged
from celeriac.insights.why.blockers import blockers
from celeriac.store.connections import Database
from celeriac.store.patience import patient

logger = logging.getLogger(__name__)

#: Seconds between two lines.
SAY_EVERY = 10.0


class HeldUp:
    """Logs the locks that one thread meets."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._next = 0.0

    def say(self, what: str) -> None:
        """Log a line at once, then at most one each `SAY_EVERY` seconds. Never raises."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SAY_EVERY
        try:
            with patient(0.5), self.database.statement() as connection:
                met = blockers(connection, longer_than=0.2)
        except Exception as error:
            logger.debug("Who holds a lock could not be asked: %s", error)
            met = []
        if not met:
            logger.warning("Somebody's lock is in the way, and what it concerns is done later: %s", what)
        for one in met:
            extra = logged.of("lock.held_up", pid=one.pid, login=one.login, application=one.name, seconds=one.seconds)
            logger.warning(
                "Somebody's lock is in the way, and what it concerns is done later: %s; %s",
                one.sentence,
                one.cure,
                extra=extra,
            )
