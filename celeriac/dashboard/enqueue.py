"""Enqueue a new task, by the same rules as `.delay()`, or a duplicate of an earlier one."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from celeriac import insights
from celeriac.dashboard.forms import Form, Id, Sent, as_object
from celeriac.dashboard.guard import Enqueuer
from celeriac.dashboard.page import Page
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.intake import new_task
from celeriac.enqueue.rows import NewTask, Receipt
from celeriac.errors import CeleriacError, Unknown
from celeriac.insights import ARGUMENT
from celeriac.insights.fleet.one_role import parameters, registered
from celeriac.insights.tasks.tasks import call as call_of
from celeriac.operate import audit
from celeriac.operate.audit import Change
from celeriac.store.encoding import revived
from celeriac.store.ids import fresh_id
from celeriac.store.states import PENDING

router = APIRouter()


@router.post("/enqueue/{role:name}")
def new(role: str, page: Enqueuer, form: Sent) -> Response:
    """Enqueue a task. Its arguments have a field each, or are in a JSON object."""
    options = {field: form.name(field) for field in ("account", "lock_key", "unique_key", "queue") if form.name(field)}

    def call() -> dict[str, Any]:
        return {
            "kwargs": as_object(form["kwargs"]) | _named(form),
            "priority": form.whole("priority") if form["priority"] else None,
            **options,
        }

    return _enqueued(page, role, page.to("roles", role), call)


@router.get("/new-task")
def form(page: Enqueuer) -> Response:
    """Show the roles, and the form of a chosen one."""
    role = page.ask("role").get("role")
    roles = page.panel(registered)
    asked = page.panel(parameters, role) if role else None
    if role and asked and not asked.stopped and not roles.stopped and role not in roles.value:
        raise Unknown(f"there is no role {role!r}: start a worker of the code that declares it")
    title = f"New task of {role}" if role else "New task"
    return page.show("new-task.html", title, roles=roles, role=role, parameters=asked)


def _named(form: Form) -> dict[str, Any]:
    """Return the arguments in fields of their own; an empty field means the default."""
    texts = {name.removeprefix(ARGUMENT): form[name] for name in form.fields if name.startswith(ARGUMENT)}
    return {name: insights.as_argument(value) for name, value in texts.items() if value}


@router.post("/tasks/{task}/duplicate")
def duplicate(task: Id, page: Enqueuer) -> Response:
    """Enqueue a task with the same arguments, account, keys, priority and queue, due now."""
    was = page.read(insights.get, task)
    args, kwargs = page.read(call_of, task)

    def call() -> dict[str, Any]:
        same = {name: was[name] for name in ("account", "lock_key", "unique_key", "priority", "queue")}
        return {"args": revived(args), "kwargs": revived(kwargs), **same}

    return _enqueued(page, was["role"], page.to("tasks", task), call)


def _enqueued(page: Page, name: str, back: str, call: Any) -> Response:
    """Enqueue and go to the new task; if it is refused, go back with the reason."""
    try:
        receipt = _enqueue(page, name, call())
    except CeleriacError as error:
        return page.go(back, f"Nothing was enqueued: {error}.")
    said = "It is enqueued." if receipt.is_new else "This one has its key already, and is not finished."
    return page.go(page.to("tasks", receipt.id), said)


def _enqueue(page: Page, name: str, call: dict[str, Any]) -> Receipt:
    role, signature = page.celeriac.role_named(name)
    page.bearer.refuse_role(role.name)
    limit, by = page.celeriac.settings.max_argument_bytes, page.bearer.name
    args, kwargs = call.pop("args", []), call.pop("kwargs")
    task = new_task(role, signature, fresh_id(), args, kwargs, limit=limit, enqueued_by=by, **call)
    page.bearer.refuse(task)
    receipt: Receipt = page.write(lambda connection: _insert(connection, task, by))
    page.celeriac.kick([task.lane] if receipt.is_new else [])
    return receipt


def _insert(connection: Connection, task: NewTask, by: str) -> Receipt:
    """Insert the row, and in the same transaction the record of who enqueued it."""
    (receipt,) = enqueue(connection, [task])
    if receipt.is_new:
        made = Change(str(receipt.id), None, {"role": task.role, "task_id": task.task_id, "status": PENDING})
        audit.write(connection, "enqueue", "task", [made], by=by)
    return receipt
