"""Enqueuing over HTTP: the same rules as `.delay()`, one task or many in one transaction."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from celeriac.api.app import App, write
from celeriac.api.callers import Enqueuer
from celeriac.api.fields import Moment, Name, Number, Priority, Text, Whole
from celeriac.api.problems import from_refusal
from celeriac.api.system import AnswerModel
from celeriac.enqueue.bulk import refuse_different
from celeriac.enqueue.insert import as_they_stand, enqueue
from celeriac.enqueue.intake import new_task
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.errors import EnqueueRefused
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.operate.tokens import Bearer
from celeriac.roles.bounds import LONGEST_DELAY
from celeriac.roles.bounds import MOST as MOST_RETRIES
from celeriac.store.ids import fresh_id
from celeriac.store.states import PENDING, WAITS_FOR_LOCK

if TYPE_CHECKING:
    from celeriac.app import Celeriac

router = APIRouter(tags=["tasks"])

#: Most tasks that a request may enqueue.
MOST = 1000


class TaskToBe(BaseModel):
    """A task to enqueue. Any further field is an argument of the role's handler, as if it stood in `kwargs`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"role": "product_resync", "dispensary_id": 123, "priority": 10}]},
    )

    role: Name
    args: Annotated[list[Any], Field(max_length=100)] = []
    kwargs: dict[str, Any] = {}
    task_id: Annotated[
        Annotated[Text, Field(min_length=1)] | None,
        Field(description="an id of your own: if it is sent twice, the second request finds the first one's row"),
    ] = None
    priority: Priority | None = None
    scheduled_for: Annotated[Moment | None, Field(description="not before")] = None
    delay: Annotated[Number | None, Field(ge=0, le=LONGEST_DELAY, description="seconds from now")] = None
    expires_at: Annotated[Moment | None, Field(description="cancelled if it has not started by then")] = None
    account: Text | None = None
    lock_key: Text | None = None
    unique_key: Text | None = None
    max_retries: Annotated[int, Whole(0, MOST_RETRIES)] | None = None
    timeout: Annotated[Number | None, Field(gt=0, le=LONGEST_DELAY, description="seconds")] = None
    queue: Annotated[Name | None, Field(description="one of those that the role lists; by default the first")] = None

    def arguments(self) -> dict[str, Any]:
        return self.kwargs | (self.model_extra or {})

    def options(self) -> dict[str, Any]:
        plain = ("priority", "delay", "account", "lock_key", "unique_key", "max_retries", "timeout", "queue")
        times = {"at": self.scheduled_for, "expires_at": self.expires_at}
        return {name: getattr(self, name) for name in plain} | {k: v.isoformat() for k, v in times.items() if v}


class TasksToBe(BaseModel):
    tasks: Annotated[list[TaskToBe], Field(min_length=1, max_length=MOST)]


class Accepted(AnswerModel):
    """The accepted task. `is_new` false: it is the unfinished one with the same unique key or task id."""

    id: int = Field(examples=[7])
    task_id: str = Field(examples=["0f3e8c1a-6f1d-4a53-9f8e-9a2f6f0b6c11"])
    is_new: bool
    waits_for: str | None = Field(description="time, lock, or null: it can start", examples=["time"])
    due_at: datetime | None = Field(default=None, description="when an existing task that waits for its time is due")


class AllAccepted(BaseModel):
    tasks: list[Accepted]


#: The answer besides 201: the task existed already.
WAS_THERE: dict[int | str, dict[str, Any]] = {200: {"model": Accepted, "description": "It was there."}}


#: A header for callers without ids of their own.
Key = Annotated[
    Name | None,
    Header(alias="Idempotency-Key", description="the same request, sent again with the same token, finds its rows"),
]


#: A valid `traceparent`. W3C Trace Context requires that others are ignored.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


async def _traced(
    traceparent: Annotated[
        str | None, Header(description="that of the caller's span, to whose trace the task then belongs")
    ] = None,
    tracestate: Annotated[str | None, Header(description="sent with it, up to 512 characters")] = None,
) -> dict[str, Any]:
    """Return the tasks' option `headers`, with the caller's trace."""
    if traceparent is None or not _TRACEPARENT.fullmatch(traceparent):
        return {}
    state = {"tracestate": tracestate} if tracestate and len(tracestate) <= 512 and tracestate.isprintable() else {}
    return {"headers": {"headers": {"traceparent": traceparent, **state}}}


Traced = Annotated[dict[str, Any], Depends(_traced)]


@router.post("/api/tasks", status_code=201, responses=WAS_THERE)
def create_task(
    body: TaskToBe, app: App, caller: Enqueuer, response: Response, traced: Traced, key: Key = None
) -> Accepted:
    """Accept a task: one row, in the state it has once this answers."""
    (receipt,) = _enqueue(app, [_task(app, body, caller, key, traced)], caller.name)
    response.status_code = 201 if receipt.is_new else 200
    return Accepted.model_validate(receipt)


@router.post("/api/tasks/bulk", status_code=201)
def create_tasks(body: TasksToBe, app: App, caller: Enqueuer, traced: Traced, key: Key = None) -> AllAccepted:
    """Accept all of them in one transaction, or none."""
    tasks = [_task(app, task, caller, key, traced, f"tasks.{n}") for n, task in enumerate(body.tasks)]
    return AllAccepted(tasks=[Accepted.model_validate(receipt) for receipt in _enqueue(app, tasks, caller.name)])


def _task(
    app: Celeriac, body: TaskToBe, caller: Bearer, key: str | None, traced: dict[str, Any], within: str = ""
) -> NewTask:
    task_id = body.task_id or (fresh_id() if key is None else caller.id_of(f"{within} {key}"))
    caller.refuse_role(body.role)
    try:
        role, signature = app.role_named(body.role)
        task = new_task(
            role, signature, task_id, body.args, body.arguments(),
            limit=app.settings.max_argument_bytes, enqueued_by=caller.name, **body.options(), **traced,
        )  # fmt: skip
    except EnqueueRefused as error:
        raise from_refusal(error, within) from error
    caller.refuse(task, body.task_id)
    return task


def _enqueue(app: Celeriac, tasks: list[NewTask], by: str) -> list[Receipt]:
    receipts = write(app, lambda connection: _insert(connection, tasks, by))
    app.kick({task.lane for _, task in _new(receipts, tasks)})
    if all(receipt.waits_for != WAITS_FOR_LOCK for receipt in receipts):
        return receipts
    with app.database.reading() as connection:
        return as_they_stand(connection, receipts)


def _insert(connection: Connection, tasks: list[NewTask], by: str) -> list[Receipt]:
    """Insert the rows together with the record of who enqueued them."""
    receipts = enqueue(connection, tasks)
    refuse_different(tasks, receipts)
    changes = [
        Change(str(receipt.id), None, {"role": task.role, "task_id": task.task_id, "status": PENDING})
        for receipt, task in _new(receipts, tasks)
    ]
    audit.write(connection, "enqueue", "task", changes, by=by)
    return receipts


def _new(receipts: list[Receipt], tasks: list[NewTask]) -> list[tuple[Receipt, NewTask]]:
    return [(receipt, task) for receipt, task in zip(receipts, tasks, strict=True) if receipt.is_new]
