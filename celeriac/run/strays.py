"""Unconfirmed starts: tickets that may yet become this process's, because the answer to their claim was lost.

The server may still be about to commit the claim, behind a slow disk or a standby. Nobody would run such a ticket's
tasks, and its live process would keep it from going stale: so it is handed back as soon as it appears.
"""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy.exc import DBAPIError

from celeriac.run.ticket import hand_back
from celeriac.run.watch import LOOK_EVERY
from celeriac.store.connections import Database

logger = logging.getLogger(__name__)

#: The longest time (seconds) between two attempts. They become rarer, as a ticket usually appears at once or never.
SELDOM = 10.0


def look_after(database: Database, token: str, seconds: float) -> None:
    """Hand back, in a thread, a ticket that appears under this token within so many seconds."""
    until = time.monotonic() + seconds
    threading.Thread(target=_look_after, args=(database, token, until), name="celeriac-stray", daemon=True).start()


def _look_after(database: Database, token: str, until: float) -> None:
    rest = LOOK_EVERY
    while time.monotonic() < until:
        time.sleep(rest)
        rest = min(2 * rest, SELDOM)
        try:
            with database.transaction() as connection:
                freed = hand_back(connection, [token], started=True)
        except DBAPIError as error:
            logger.debug("A stray ticket is looked for again in %g s: %s", rest, error)
            continue
        if freed:
            logger.warning("A ticket came after its answer was lost: %d tasks wait again", len(freed))
            return
