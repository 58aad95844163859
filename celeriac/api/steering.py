"""Operators' moves of tasks, one or many, by the engine's own names."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Admin, Operator
from celeriac.api.changes import Because, Changed, Many, ManyChanged, Reason, ToPriority, many, one
from celeriac.api.fields import Flag, TaskInPath
from celeriac.operate import steer

router = APIRouter(prefix="/api/tasks", tags=["tasks"])


@router.post("/bulk/cancel")
def cancel_tasks(body: Many, app: App, caller: Operator) -> ManyChanged:
    """Cancel each task that is not over yet."""
    return many(app, body.ids, partial(steer.cancel, by=caller.name, why=body.why))


@router.post("/bulk/retry")
def retry_tasks(body: Many, app: App, caller: Operator) -> ManyChanged:
    """Retry each task that failed or was cancelled, with all its attempts."""
    return many(app, body.ids, partial(steer.retry, by=caller.name, why=body.why))


@router.post("/{task}/cancel")
def cancel_task(task: TaskInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Cancel a task at once, unless it runs: then its worker is asked to stop it (`asked` in `after`)."""
    return one(app, task, partial(steer.cancel, by=caller.name, why=body.why))


class RetryOptions(Because):
    goes_on: Flag = Field(default=False, description="its progress stays, and its attempts count on")


@router.post("/{task}/retry")
def retry_task(
    task: TaskInPath, app: App, caller: Operator, body: Annotated[RetryOptions, Body(default_factory=RetryOptions)]
) -> Changed:  # fmt: skip
    """Make a failed or cancelled task wait again, with all its attempts, or from where it stopped."""
    return one(app, task, partial(steer.retry, by=caller.name, why=body.why, goes_on=body.goes_on))


@router.post("/{task}/hasten")
def hasten_task(task: TaskInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Make a task due now that waits for its time, planned or between two attempts; 409 for any other."""
    with app.database.reading() as connection:
        role: str = insights.get(connection, task)["role"]
    changed = one(app, task, partial(steer.hasten, by=caller.name, why=body.why))
    app.kick([role])
    return changed


class ToArguments(Because):
    arguments: dict[str, Any] = Field(description="those that are to be others, by name", examples=[{"store_id": 8}])


@router.put("/{task}/arguments")
def set_task_arguments(task: TaskInPath, body: ToArguments, app: App, caller: Admin) -> Changed:
    """Replace arguments of a waiting task. 422 if its account or one of its keys would change."""
    with app.database.reading() as connection:
        row = insights.row_of(connection, task)
    return Changed.model_validate(app.edit(row, body.arguments, by=caller.name, why=body.why))


@router.put("/{task}/priority")
def set_task_priority(task: TaskInPath, body: ToPriority, app: App, caller: Operator) -> Changed:
    """Set a task's priority; if it waits it is claimed in its new order from now on."""
    return one(app, task, partial(steer.set_priority, priority=body.priority, by=caller.name, why=body.why))
