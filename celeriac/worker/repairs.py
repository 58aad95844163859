"""Threads of the parent: one for the outbox, and for a review and the vital repairs if no beat runs them; one for the
ring.

The lifeline's poll sees whether there is anything in the outbox and whether the ring is worn.
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

#: Maximum seconds between two checks of the ring. Under an old transaction thousands of entries die in a second, and
#: each claim reads them until the ring turns.
LOOK_EVERY = 1.0

#: Seconds without a report of anybody that are a gap, unless the worker's roles have short leases.
SILENCE = 5.0


class Repairs(threading.Thread):
    """The repairs of one worker: a review first; then, until `ending`, the outbox, and every `sweep_interval` the vital
    repairs.

    `gap`: returns the seconds of silence after which nobody can have been able to write.
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
        # It has its own thread: after an outage a review may remove very many rows, and the outbox must not wait for
        # that.
        review = threading.Thread(target=self._review, name="celeriac-review", daemon=True)
        review.start()
        # It has its own thread: a turn moves live entries, which may take a minute, and the outbox must not wait for
        # that.
        ring = threading.Thread(target=self._turn, name="celeriac-ring", daemon=True)
        ring.start()
        while not self._waits_for(SEEN.outbox):
            self.look(time.monotonic())
        review.join()
        ring.join()

    def _turn(self) -> None:
        while not self._waits_for(SEEN.ring):
            self.turn()

    def _waits_for(self, what: threading.Event) -> bool:
        """Wait until there is something to do or it is time to check; return whether the worker ends."""
        if not self.ending.is_set():
            what.wait(min(self.every, self.app.settings.poll_interval, LOOK_EVERY))
        return self.ending.is_set()

    def turn(self) -> None:
        if SEEN.calls_for(SEEN.ring):
            self._try(lambda: above.load(above.TURN_OF_THE_RING)(self.app.database, self.app.kick))

    def _review(self) -> None:
        self._try(self._review_behind_others)

    def _review_behind_others(self) -> None:
        """Review. If this worker is the first to write after a silence, those who are well come back first: a review
        takes the tasks of the others.
        """
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
        """Record a gap before anything is rescued: the worker's heartbeat, which does it as well, may come later."""
        with self.app.database.transaction() as connection:
            lease.note_gap(connection, shared.worker_id(), os.getpid(), self.gap())

    def _admit(self) -> None:
        if roles := self.admission.look():
            self.app.kick(roles)

    def _try(self, act: Callable[[], object]) -> None:
        """Try one repair; one that fails does not stop the others."""
        try:
            act()
        except Exception as error:
            if is_gone(error):
                self.away.say(error)
                # Heartbeats come first, so that leases that could not be renewed meanwhile do not count as stale.
                self.due = max(self.due, time.monotonic() + self.every)
            else:
                log_error(logger, error, "A repair failed; it is tried again")
