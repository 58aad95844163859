"""The ticket task in Celery's worker: it goes through the pool like any task, unreported. Events, signals and log lines
are about its rows, and come from the process that runs them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionInfo
from celery import states
from celery.app.task import Task
from celery.app.trace import TraceInfo, trace_ok_t
from celery.worker.state import task_reserved

from celeriac.run.places import places
from celeriac.worker.request import TicketRequest

if TYPE_CHECKING:
    from celery.worker.consumer import Consumer

logger = logging.getLogger(__name__)


class TicketTask(Task):
    """The ticket task. Celery's tracer never runs it, but may run its rows, for listeners."""

    abstract = True
    send_events = False
    Strategy = "celeriac.worker.tickets:strategy"

    @property
    def __trace__(self) -> Callable[..., Any]:
        return self._trace

    @__trace__.setter
    def __trace__(self, _: Any) -> None:
        """Ignore the tracer that Celery builds for every task as each process starts."""

    def _trace(self, _: str, args: Any, kwargs: Any, __: Any) -> Any:
        """Run the ticket and return the tuple that Celery's pool takes: a result as text, or the raised exception."""
        try:
            return trace_ok_t(None, None, 0.0, self.run(*args, **kwargs))
        except Exception as error:
            return _broke(error)
        except BaseException as error:
            if places.kind is None:
                raise
            # Tasks share the process, so it goes on; Celery's thread pool would forget the ticket.
            return _broke(RuntimeError(f"the handler ended its thread: {error!r}"))


def _broke(error: Exception) -> Any:
    logger.exception("A ticket broke off: %r", error)  # noqa: LOG004 - within one of `_trace`
    return trace_ok_t(ExceptionInfo(), TraceInfo(states.FAILURE, error), 0.0, None)


def strategy(task: Task, app: Any, consumer: Consumer, **_: Any) -> Callable[..., None]:
    """Return a handler of messages that does what Celery's does for a due task, without its reports."""

    def take(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:  # noqa: ARG001 - Celery's
        request = TicketRequest(
            message, on_ack=ack, on_reject=reject, app=app, hostname=consumer.hostname, task=task,
            eventer=consumer.event_dispatcher, connection_errors=consumer.connection_errors,
        )  # fmt: skip
        task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        consumer.on_task_request(request)

    return take
