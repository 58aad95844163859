"""Repairs, in threads of the parent: outbox, ring, vital repairs if no beat runs them, and a review at the start.

The lifeline's poll sees whether the outbox has tasks and whether the ring is worn.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from celeriac import above
from celeriac.enqueue.outbox import Admission
from celeriac.run import lease, shared
from celeriac.run.seen import SEEN
from celeriac.store.failures import Away, is_gone, log_error
from celeriac.worker.app import WorkerApp

logger = logging.getLogger(__name__)

#: Maximum seconds between two checks. Under an old transaction thousands of the ring's entries die in a second, and
#: each claim reads them until the ring turns.
LOOK_EVERY = 1.0

#: Seconds without any worker's report that are a gap, unless the worker's roles have short leases.
SILENCE = 5.0


class Repairs(threading.Thread):
    """One worker's repairs: a review; until `ending` the outbox, the ring, and every `sweep_interval` the vital ones.

    `gap`: returns the seconds of all workers' silence from which it follows that nobody could write.
    """

    def __init__(self, app: WorkerApp, ending: threading.Event, gap: Callable[[], float] = lambda: SILENCE) -> None:
        super().__init__(name="celeriac-repairs", daemon=True)
        self.app = app
        self.gap = gap
        self.every = app.settings.sweep_interval
        self.due = time.monotonic() + self.every
        self.admission = Admission(app.database)
        self.away = Away()
        self.ending = ending

    def run(self) -> None:
        # The outbox must not wait for these: after an outage a review may remove very many rows, and a turn of the
        # ring, which moves live entries, may take a minute.
        review = threading.Thread(target=self._review_at_last, name="celeriac-review", daemon=True)
        ring = threading.Thread(target=self._turn, name="celeriac-ring", daemon=True)
        for thread in (review, ring):
            thread.start()
        while not self._waits_for(SEEN.outbox):
            self.look(time.monotonic())
        for thread in (review, ring):
            thread.join()

    def _turn(self) -> None:
        while not self._waits_for(SEEN.ring):
            self.turn()

    def _waits_for(self, what: threading.Event) -> bool:
        """Wait until there is work or the next check is due; return whether the worker ends."""
        if not self.ending.is_set():
            what.wait(min(self.every, self.app.settings.poll_interval, LOOK_EVERY))
        return self.ending.is_set()

    def turn(self) -> None:
        if SEEN.calls_for(SEEN.ring):
            self._try(lambda: above.load(above.TURN_OF_THE_RING)(self.app.database, self.app.kick))

    def _review_at_last(self) -> None:
        """Review; after a failure again at each interval, until it has succeeded or the worker ends."""
        while not self._try(self._review) and not self.ending.wait(self.every):
            pass

    def _review(self) -> None:
        """Review. After a gap, first wait until the living workers have reported: a review takes the others' tasks."""
        self._note_gap()
        while self._awaits_others():
            if self.ending.wait(LOOK_EVERY):
                return
        above.load(above.REVIEW_AT_START)(self.app)

    def _awaits_others(self) -> bool:
        with self.app.database.statement() as connection:
            return lease.awaits_others(connection)

    def look(self, now: float) -> None:
        if SEEN.calls_for(SEEN.outbox):
            self._try(self._admit)
        if now >= self.due:
            self.due = now + self.every
            self._try(self._repair)

    def _repair(self) -> None:
        self._note_gap()
        above.load(above.VITAL_REPAIRS)(self.app)

    def _note_gap(self) -> None:
        """Record a gap before tasks are rescued: the heartbeat, which also does, may come later."""
        with self.app.database.transaction() as connection:
            lease.note_gap(connection, shared.worker_id(), os.getpid(), self.gap())

    def _admit(self) -> None:
        if roles := self.admission.look():
            self.app.kick(roles)

    def _try(self, act: Callable[[], object]) -> bool:
        """Try one repair, and return whether it succeeded; one that fails does not stop the others."""
        try:
            act()
            return True
        except Exception as error:
            if is_gone(error):
                self.away.say(error)
                # Heartbeats come first: leases that nobody could renew meanwhile must not count as stale.
                self.due = max(self.due, time.monotonic() + self.every)
            else:
                log_error(logger, error, "A repair failed; it is tried again")
            return False
