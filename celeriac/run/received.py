"""Send Celery's signal `task_received` for rows, with a request that has what Celery's own would have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import signals
from celery.worker.request import Request
from kombu.message import Message

from celeriac.roles.role import Role
from celeriac.run import shared
from celeriac.run.app import TaskApp
from celeriac.run.requests import request_of
from celeriac.run.run import Run
from celeriac.store.encoding import legible
from celeriac.store.started import Started

#: Fields that Celery has in a message's body beside the arguments.
EMBEDDED = ("callbacks", "errbacks", "chain", "chord")

#: Fields that every message of Celery's has, if only to say that there is none.
ALWAYS: Mapping[str, Any] = {
    "lang": "py", "group": None, "group_index": None, "expires": None, "replaced_task_nesting": 0,
    "stamped_headers": None, "stamps": {},
} | dict.fromkeys(EMBEDDED)  # fmt: skip


def is_heard() -> bool:
    return bool(signals.task_received.receivers)


def tell(app: TaskApp, role: Role, task: Started) -> None:
    """Send the signal in the process that is about to run the task;
    Celery's own sender, the consumer, is in another.
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
