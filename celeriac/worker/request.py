"""The parent's view of a ticket: if its process is lost, its rows are released at once, not when they are stale."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery.worker import state
from celery.worker.request import Request

from celeriac import logged
from celeriac.counters import COUNTERS
from celeriac.run.lines import TOKEN_SHOWN
from celeriac.settle.release import NAMED
from celeriac.worker import lifeline

logger = logging.getLogger(__name__)

#: Guards Celery's counts: the hub's thread changes them, and here also a pool's threads.
_counting = threading.Lock()

#: Wake-ups received, by role.
kicks: Counter[str] = Counter()


class TicketRequest(Request):
    """A ticket's request. It runs no SQL in the hub's thread: the lifeline releases the tickets of lost processes. It
    counts rows, not tickets.
    """

    def revoked(self) -> bool:
        """Return False: rows are cancelled in SQL, and workers' lists of revoked tasks have no tickets."""
        return False

    def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
        """Run the ticket in the pool; an asyncio pool takes it as it is."""
        return pool.bring(self) if hasattr(pool, "bring") else super().execute_using_pool(pool, **kwargs)

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        with _counting:
            super().on_accepted(pid, time_accepted)
            count(self.name, -1)
            match self.args:
                case (role, _, token) if not token:
                    kicks[role] += 1

    def on_success(self, failed__retval__runtime: Any, **kwargs: Any) -> Any:
        failed, done, _ = failed__retval__runtime
        if not failed and done:
            with _counting:
                count(self.args[0], done.get("ran", 0))
        self._count_outcome(None if failed else done)
        return super().on_success(failed__retval__runtime, **kwargs)

    def _count_outcome(self, done: dict[str, Any] | None) -> None:
        role, ids, token = self.args
        if done and (counted := done.pop("counted", None)):
            COUNTERS.add(counted)
        if token and not (done and "unknown_role" in done):
            COUNTERS.count(1, "tickets_total", role, became(done, len(ids)))
        if done and (lost := done.get("lost", 0)):
            COUNTERS.count(lost, "fence_refusals_total", role, "start")
            fields = {"role": role, "n": lost, "tasks": list(ids)[:NAMED], "ticket": token[:TOKEN_SHOWN]}
            extra = logged.of("ticket.refused", **fields)
            logger.info("%d of the %d tasks of a ticket of %s were somebody else's", lost, len(ids), role, extra=extra)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        if not isinstance(error, WorkerLostError | SystemExit | KeyboardInterrupt):
            return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        state.task_ready(self)
        logger.error("Process %s was lost with ticket %s: %s", self.worker_pid, self.name, error)
        lifeline.lost_process(self.worker_pid)
        return None


def became(done: Mapping[str, Any] | None, tasks: int) -> str:
    """Return what became of a ticket of so many tasks. `done`: its run's result; None: the run raised."""
    if done is None:
        return "broken"
    if "handed_back" in done:
        return "handed_back"
    lost = done.get("lost", 0)
    return "won" if not lost else "partly" if lost < tasks else "lost"


def ran(role: str, tasks: int) -> None:
    """Count the tasks of a ticket that did not come by Redis."""
    with _counting:
        count(role, tasks)


def count(name: str, tasks: int) -> None:
    """Add to the counts in `inspect stats` and in the `processed` of Celery's heartbeat."""
    state.all_total_count[0] += tasks
    state.total_count[name] += tasks
    if not state.total_count[name]:
        del state.total_count[name]
