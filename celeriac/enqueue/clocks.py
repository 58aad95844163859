"""Compare this host's clock with the database's: a call's instants are computed by the one and read by the other."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from sqlalchemy import text

from celeriac.store.connections import Database

logger = logging.getLogger(__name__)

#: Seconds by which the clocks may differ, and seconds until they are compared again.
APART, BELIEVED = 60.0, 600.0

NOW = text("SELECT clock_timestamp()")


class Clocks:
    """The clocks of this host and the database. `wait` runs a function that waits for Postgres beside a caller's event
    loop.
    """

    def __init__(self, database: Database, wait: Callable[[Callable[[], float]], float]) -> None:
        self.database = database
        self.wait = wait
        self._next = -math.inf

    def compare(self, role: str, instants: Iterable[object]) -> None:
        """Warn if a call gives instants and the clocks differ, every ten minutes at most. Never raises."""
        if time.monotonic() < self._next or not any(isinstance(one, datetime) for one in instants):
            return
        self._next = time.monotonic() + BELIEVED
        try:
            ahead = self.wait(self._ahead)
        except Exception as error:
            logger.debug("The database's clock cannot be read: %s", error)
            return
        if abs(ahead) >= APART:
            logger.warning(
                "%s: a call gives an instant (eta, expires), and this host's clock is %.0f s %s the database's, which "
                "decides: let both follow NTP, or give seconds from now",
                role, abs(ahead), "ahead of" if ahead > 0 else "behind",
            )  # fmt: skip

    def _ahead(self) -> float:
        """Return how many seconds this host's clock is ahead, less the time to Postgres and back."""
        with self.database.statement(limited=True) as connection:
            before = datetime.now(UTC)
            theirs = connection.execute(NOW).scalar_one()
            after = datetime.now(UTC)
        behind, ahead = (theirs - after).total_seconds(), (before - theirs).total_seconds()
        return ahead if ahead > 0 else -max(behind, 0.0)
