"""The event reporter: sends Celery's events about tasks that ended outside a run, `task_revoked` for cancelled ones.

Operators' cancels, lost processes and sweeps leave task events in SQL. One worker at a time reads these and sends
Celery's events to the listeners, and the signal to its own process's receivers.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import signals
from celery.app.task import Context

from celeriac.insights.fleet import ended
from celeriac.insights.tasks import redaction
from celeriac.run import journal, shared
from celeriac.store.encoding import legible
from celeriac.store.failures import is_gone, log_error
from celeriac.store.sensitive import Sensitive
from celeriac.store.states import CANCELLED, FAILED
from celeriac.worker.app import WorkerApp

logger = logging.getLogger(__name__)

#: The age (seconds) at which a task event is read: by then transactions with earlier ids have mostly committed.
LAG = 1.0

#: Maximum number of task events that are read at once.
BATCH = 1000

#: If there was no reporter for so long (milliseconds), the next one skips the events since.
FORGOTTEN = 60_000

TURN, UPTO = "celeriac:herald", "celeriac:herald:upto"


class Herald(threading.Thread):
    """The reporter's thread: polls every `poll_interval` while somebody listens, until `ending`."""

    def __init__(self, app: WorkerApp, ending: threading.Event) -> None:
        super().__init__(name="celeriac-herald", daemon=True)
        self.app = app
        self.every = app.settings.poll_interval
        self.ending = ending

    def run(self) -> None:
        while not self.ending.wait(self.every):
            try:
                self.look()
            except Exception as error:
                if is_gone(error):
                    logger.warning("Postgres is away; events of ended tasks are sent once it is back")
                else:
                    log_error(logger, error, "Events of ended tasks could not be sent; it is tried again")

    def look(self) -> None:
        if not (shared.telling() or signals.task_revoked.receivers):
            return
        self.app.journal.flush()  # this process's own events, kept while Redis was away
        if not self._is_mine():
            return
        while self._send_batch() and not self.ending.is_set() and self._is_mine():
            pass

    def _send_batch(self) -> bool:
        """Send a batch of events; return whether there may be more."""
        with self.app.database.reading() as connection:
            if (upto := self._upto()) is None:
                self._set_upto(ended.last(connection))
                return False
            rows = ended.since(connection, upto, lag=LAG, most=BATCH)
            secret = redaction.of_roles(connection, {row["role"] for row in rows if row["role"]}) if rows else {}
        for row in rows:
            if row["task_id"] is None:
                continue
            if shared.telling() and journal.tells_of(self.app.tasks, row["role"]):
                self.app.journal.write(event_of(row, secret.get(row["role"])))
            if row["became"] == CANCELLED:
                self._revoked(row)
        self.app.journal.flush()
        self._set_upto(rows[-1]["id"] if rows else upto)
        return len(rows) == BATCH

    def _revoked(self, row: dict[str, Any]) -> None:
        """Send the signal, as Celery's worker does when it gets a revoked task."""
        task = self.app.tasks.get(row["role"])
        if task is None or not signals.task_revoked.receivers:
            return
        request = Context(
            id=row["task_id"], task=row["role"], args=legible(row["args"]), kwargs=legible(row["kwargs"]),
            retries=row["retry_count"], headers=(row["headers"] or {}).get("headers"),
        )  # fmt: skip
        is_expired = row["kind"] == "expired"
        signals.task_revoked.send(sender=task, request=request, terminated=False, signum=None, expired=is_expired)

    def _is_mine(self) -> bool:
        """Return whether it is this worker's turn, which it keeps as long as it polls in time."""
        lasts = int(max(5.0, 3 * self.every) * 1000)

        def ask(redis: Any) -> bool:
            mine = redis.set(TURN, shared.worker_id(), nx=True, px=lasts)
            return bool(mine or (redis.get(TURN) == shared.worker_id().encode() and redis.pexpire(TURN, lasts)))

        return bool(self.app.publisher.ask(ask))

    def _upto(self) -> int | None:
        value = self.app.publisher.ask(lambda redis: redis.get(UPTO))
        return int(value) if value else None

    def _set_upto(self, last: int) -> None:
        self.app.publisher.ask(lambda redis: redis.set(UPTO, last, px=FORGOTTEN))


def event_of(row: dict[str, Any], secret: Sensitive | None = None) -> journal.Event:
    """Return Celery's event for a task event, with name and arguments: a lost run may not have sent its own events."""
    became, why = row["became"], row["why"] or ""
    more: dict[str, Any] = {"retries": row["retry_count"]} | journal.arguments(
        row["args"], row["kwargs"], row["headers"], secret
    )
    name = (row["headers"] or {}).get("shadow") or row["role"]
    if became == CANCELLED:
        kind, more = "task-revoked", more | {"terminated": False, "signum": None, "expired": row["kind"] == "expired"}
    else:
        kind = "task-failed" if became == FAILED else "task-retried"
        more |= {"exception": why, "traceback": ""}
    return journal.event(kind, row["task_id"], name, node=row["node"], **more)
