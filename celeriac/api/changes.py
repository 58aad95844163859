"""Changes and their answers: the values before and after, as in the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Body
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from celeriac import insights
from celeriac.api.app import write
from celeriac.api.fields import Priority, Text
from celeriac.api.system import AnswerModel
from celeriac.app import Celeriac
from celeriac.operate import PATIENCE, steer
from celeriac.operate.audit import Change
from celeriac.operate.steer import Steered


class Because(BaseModel):
    why: Annotated[Text, Field(description="for the audit trail", examples=["the store is back"])] = ""


#: For requests whose body may be left out.
Reason = Annotated[Because, Body(default_factory=Because)]


class ToPriority(Because):
    priority: Priority = Field(examples=[50])


class Changed(AnswerModel):
    target: str = Field(examples=["7"])
    before: dict[str, Any] | None = Field(examples=[{"status": "failed"}])
    after: dict[str, Any] | None = Field(examples=[{"status": "pending"}])


class RefusedTask(BaseModel):
    id: int
    reason: str = Field(examples=["the task is running: only what failed or was cancelled can be retried"])


class ManyChanged(BaseModel):
    """The result for many tasks; each is in one of the three lists."""

    changed: list[int]
    refused: list[RefusedTask]
    missing: list[int | str] = Field(description="as they were in the request", examples=[[8, "nobody's"]])

    @classmethod
    def of(cls, steered: Steered, missing: Sequence[str] = ()) -> ManyChanged:
        changed = [int(change.target) for change in steered.changed]
        refused = [RefusedTask(id=task, reason=why) for task, why in steered.refused.items()]
        return cls(changed=changed, refused=refused, missing=[*steered.missing, *missing])


def one(app: Celeriac, task: str, move: Callable[[Connection, Sequence[int]], Steered]) -> Changed:
    """Steer one task, by its id or its task_id. Raises Unknown or IllegalMove, which answer 404 and 409."""
    with app.database.reading() as connection:
        row = insights.row_of(connection, task)
    return change(app, lambda connection: move(connection, [row]).one())


def many(
    app: Celeriac, tasks: Sequence[int | str], move: Callable[[Connection, Sequence[int]], Steered]
) -> ManyChanged:
    """Steer each task whose state allows it, by its id or its task_id, a bounded transaction at a time."""
    names = [one for one in tasks if isinstance(one, str)]
    rows: dict[str, int] = {}
    if names:
        with app.database.reading() as connection:
            rows = insights.rows_of(connection, names)
    ids = dict.fromkeys(rows[one] if isinstance(one, str) else one for one in tasks if one not in names or one in rows)
    done = sum(steer.in_batches(app.database, ids, move, patience=PATIENCE), Steered())
    return ManyChanged.of(done, [name for name in dict.fromkeys(names) if name not in rows])


def change(app: Celeriac, act: Callable[[Connection], Change]) -> Changed:
    """Make a change, in one transaction with its audit row."""
    return Changed.model_validate(write(app, act))
