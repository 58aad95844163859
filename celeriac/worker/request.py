"""The parent's view of a ticket: when its child is lost, its rows are released at once, not when they go stale."""

from __future__ import annotations

import logging
from typing import Any

from billiard.einfo import ExceptionWithTraceback
from billiard.exceptions import WorkerLostError
from celery.worker.request import Request
from celery.worker.state import task_ready

from celeriac.worker import lifeline

logger = logging.getLogger(__name__)


class TicketRequest(Request):
    """Keeps SQL off the hub's thread: the lifeline releases."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        error = exc_info.exception
        error = error.exc if isinstance(error, ExceptionWithTraceback) else error
        if not isinstance(error, WorkerLostError | SystemExit | KeyboardInterrupt):
            return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        task_ready(self)
        logger.error("Process %s was lost with ticket %s: %s", self.worker_pid, self.name, error)
        lifeline.lost_process(self.worker_pid)
        self.send_event("task-failed", exception=repr(error), traceback="")
        return None
