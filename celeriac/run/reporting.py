"""Report a ticket's tasks to others as they run; an outcome only after its commit, and only if it counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery import signals
from celery.app import trace
from celery.app.task import Context
from celery.worker.request import Request
from kombu.message import Message

from celeriac.roles.role import Role
from celeriac.run import journal, lines, redaction, shared
from celeriac.run.app import ReporterApp, TaskApp
from celeriac.run.journal import Event
from celeriac.run.outlets import LINES
from celeriac.run.requests import request_of
from celeriac.run.run import Run
from celeriac.settle.outcome import Started
from celeriac.store.encoding import legible
from celeriac.store.states import CANCELLED, COMPLETED

#: Functions that tests add here are called with each run of this process once it is settled.
witnesses: list[Callable[[Run], None]] = []


class Reporter:
    """The reports about one ticket's rows: events, if somebody listens, log lines, and Celery's signals."""

    def __init__(self, app: ReporterApp, role: Role, *, listened: bool, logs: bool) -> None:
        self.app = app
        self.journal = app.journal if listened else None
        self.role = role
        self.secret = redaction.of_role(app.roles, role)
        self.logs = logs
        self.together = logs and self.secret is None and _lets_together(lines.logger, trace.logger)
        self._seconds: dict[int, float | None] = {}
        self._left_out: set[int] = set()

    def received(self, tasks: Iterable[Started]) -> None:
        for task in tasks:
            self._seconds[task.id] = None
            if self.journal is not None and not self.journal.admits():
                self._left_out.add(task.id)
            if self.journal is not None:
                self._write(task, lambda: journal.received(task, self.secret))  # noqa: B023
            if self.logs:
                lines.claimed(task, self.role, together=self.together)
            if not task.expired and signals.task_received.receivers:
                tell(self.app, self.role, task)
        LINES.write()

    def started(self, task: Started) -> None:
        if self.journal is not None:
            self._write(task, lambda: journal.about(task, "task-started"))

    def ran(self, task: Started, seconds: float) -> None:
        self._seconds[task.id] = seconds

    def parted(self, tasks: Iterable[Started]) -> None:
        """Report tasks that were handed back before they began."""
        for task in tasks:
            self._seconds.pop(task.id, None)
            self._write(task, lambda: journal.about(task, "task-rejected", requeue=True))  # noqa: B023

    def settled(self, runs: Iterable[Run]) -> None:
        """Report each of these runs that is settled, once."""
        for run in runs:
            if run.settled and run.task.id in self._seconds:
                seconds = self._seconds.pop(run.task.id)
                if run.became != COMPLETED:  # reported even if the task's other events were left out
                    self._left_out.discard(run.task.id)
                if self.journal is not None:
                    self._write(run.task, lambda: journal.ended(run, seconds, self.secret))  # noqa: B023
                if self.logs:
                    lines.settled(run, seconds, together=self.together)
                if run.became == CANCELLED and signals.task_revoked.receivers:
                    self._revoked(run, began=seconds is not None)
                for witness in witnesses:
                    witness(run)

    def flush(self) -> None:
        LINES.write()
        if self.journal is not None:
            self.journal.flush()

    def _revoked(self, run: Run, *, began: bool) -> None:
        request = Context(request_of(self.app, run, legible), args=run.task.args, kwargs=run.task.kwargs)
        signals.task_revoked.send(
            sender=self.app.tasks[self.role.name], request=request, terminated=began, signum=None,
            expired=run.outcome is not None and run.outcome.kind == "expired",
        )  # fmt: skip

    def _write(self, task: Started, event: Callable[[], Event | None]) -> None:
        if self.journal is not None and task.id not in self._left_out and (made := event()) is not None:
            self.journal.write(made)


def _lets_together(*loggers: logging.Logger) -> bool:
    """Return whether lines of these loggers may be written in batches; our own filter passes all lines without
    secrets.
    """
    return all(type(one) is redaction.Redacting for named in loggers for one in named.filters) and LINES.take(*loggers)


def reporter(app: ReporterApp, role: Role) -> Reporter | None:
    """Return a reporter; None while nobody listens, so that reports cost a run nothing."""
    listened = shared.telling() and journal.tells_of(app.tasks, role.name)
    logs = lines.logger.isEnabledFor(logging.INFO)
    if listened or logs or signals.task_revoked.receivers or witnesses or signals.task_received.receivers:
        return Reporter(app, role, listened=listened, logs=logs)
    return None


#: Fields that Celery has in a message's body beside the arguments.
EMBEDDED = ("callbacks", "errbacks", "chain", "chord")

#: Fields that every message of Celery's has, None included.
ALWAYS: Mapping[str, Any] = {
    "lang": "py", "group": None, "group_index": None, "expires": None, "replaced_task_nesting": 0,
    "stamped_headers": None, "stamps": {},
} | dict.fromkeys(EMBEDDED)  # fmt: skip


def tell(app: TaskApp, role: Role, task: Started) -> None:
    """Send the signal in the process that is about to run the task. Celery sends it from its consumer, in another
    process.
    """
    signals.task_received.send(sender=app.tasks[role.name], request=request(app, role, task))


def request(app: TaskApp, role: Role, task: Started) -> Request:
    """Return the signal's request. It has no message: to acknowledge or reject it changes nothing."""
    said = dict(ALWAYS) | request_of(app, Run(task, role, app.database), legible)
    body = legible(task.args), legible(task.kwargs), {name: said[name] for name in EMBEDDED}
    properties = {"correlation_id": task.task_id, "reply_to": "", "priority": said["delivery_info"]["priority"]}
    message = Message(
        body=body, headers=said, properties=properties, delivery_info=said["delivery_info"],
        content_type="application/json", content_encoding="utf-8",
    )  # fmt: skip
    return Request(message, app=app, task=app.tasks[role.name], hostname=shared.node(), body=body, decoded=True)
