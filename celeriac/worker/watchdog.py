"""The watchdog: ends a hung connection, so that the lifeline reconnects; a frozen Postgres would hang it for ever."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from celeriac.store.connections import Database
from celeriac.store.overdue import shut

if TYPE_CHECKING:
    from celeriac.worker.lifeline import Lifeline

logger = logging.getLogger(__name__)


class Watchdog(threading.Thread):
    """Ends the lifeline's connection if Postgres has not answered for half the shortest lease.

    The limit is for one answer, not for a poll of many statements, which takes long if the server is far away.
    Heartbeats are a third of a lease apart: a hung one is ended before five sixths of the lease are over, so that
    another is still in time.
    """

    def __init__(self, lifeline: Lifeline) -> None:
        super().__init__(name="celeriac-watchdog", daemon=True)
        self.lifeline = lifeline

    def run(self) -> None:
        limit = self.lifeline.lease() / 2
        while not self.lifeline.over.wait(min(limit / 16, 5.0)):
            limit = self.lifeline.lease() / 2
            if time.monotonic() - max(self.lifeline.answered, self.lifeline.database.answered) > limit:
                logger.error("Postgres has not answered for %g s; dropping the heartbeat's connection", limit)
                self.lifeline.answered = time.monotonic()
                shut_sockets(self.lifeline.database)


def shut_sockets(database: Database) -> None:
    """Shut the database's sockets: calls that block on them raise, and later ones reconnect."""
    for connection in database.open_connections():
        shut(connection)
