"""Operators' changes of one task: make it due now, change its arguments. `moves` has changes of many."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Admin, Operator
from celeriac.api.changes import Because, Changed, Reason, one
from celeriac.api.fields import TaskInPath
from celeriac.operate import steer

router = APIRouter(prefix="/api/tasks", tags=["tasks"])


@router.post("/{task}/hasten")
def hasten_task(task: TaskInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Make a task that waits for its time, planned or between two attempts, due now; 409 for any other."""
    with app.database.reading() as connection:
        role: str = insights.get(connection, task)["role"]
    changed = one(app, task, partial(steer.hasten, by=caller.name, why=body.why))
    app.kick([role])
    return changed


class ToArguments(Because):
    arguments: dict[str, Any] = Field(description="the arguments to change, by name", examples=[{"store_id": 8}])


@router.put("/{task}/arguments")
def set_task_arguments(task: TaskInPath, body: ToArguments, app: App, caller: Admin) -> Changed:
    """Replace arguments of a waiting task. 422 if its account or one of its keys would change."""
    with app.database.reading() as connection:
        row = insights.row_of(connection, task)
    return Changed.model_validate(app.edit(row, body.arguments, by=caller.name, why=body.why))
