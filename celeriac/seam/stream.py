"""Chords whose header is a slow generator: members are enqueued as they are generated, as in Celery."""

from __future__ import annotations

import time

from celeriac.enqueue.gates import AT_THE_LATEST, close, gate
from celeriac.enqueue.rows import NewTask
from celeriac.operate.cancel import cancel_all
from celeriac.seam.app import SeamApp
from celeriac.store.failures import retry_deadlocks

#: Seconds: a header complete within them is enqueued as a whole, a slower one in pieces at least this far apart.
PATIENCE = 0.5


class Stream:
    """The members of one such chord, each piece in its own transaction. `began`: the call's start (monotonic)."""

    def __init__(self, app: SeamApp, barrier: str, began: float) -> None:
        self.app = app
        self.barrier = barrier
        self.gates: list[str] = []
        self.opened = self.flushed = began

    def flush(self, tasks: list[NewTask]) -> bool:
        """Enqueue the members so far if the rest takes too long; return whether they were enqueued."""
        now = time.monotonic()
        members = [task for task in tasks if task.barrier == self.barrier]
        if now - self.flushed < PATIENCE or not members:
            return False
        if not self.gates or now - self.opened > AT_THE_LATEST / 2:
            made = gate(members[0])
            tasks, self.opened = [*tasks, made], now
            self.gates.append(made.task_id)
        self.app.enqueuer.insert(tasks, None)
        self.flushed = time.monotonic()
        return True

    def end(self, tasks: list[NewTask], places: int) -> None:
        """Enqueue the last members and close the gates."""

        def insert() -> None:
            with self.app.database.transaction() as connection:
                if tasks:
                    self.app.enqueuer.insert(tasks, connection)
                close(connection, self.gates, places)

        retry_deadlocks(insert)
        self.app.kick({task.lane for task in tasks})

    def break_off(self) -> None:
        """Cancel the gates, so that the body fails: no more members come."""
        if self.gates:
            with self.app.database.transaction() as connection:
                why = "the generator of its header broke off"
                cancel_all(connection, self.gates, by=self.app.process_name, why=why)
