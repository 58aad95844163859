"""`/api/bulk`: moves of all tasks that a filter matched, on which the servers work. `moves` begins them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Changed, Reason, change
from celeriac.api.fields import IdInPath
from celeriac.api.paging import Paged, PageOfIds
from celeriac.operate import bulks

router = APIRouter(prefix="/api/bulk", tags=["bulk"])

BulkMove = Literal["retry", "cancel", "prioritise"]


class Skipped(BaseModel):
    id: int
    reason: str = Field(examples=["the task is running: only what failed or was cancelled can be retried"])


class Bulk(BaseModel):
    id: int
    move: BulkMove
    priority: int | None
    filter: dict[str, Any] = Field(examples=[{"role": "product_resync", "statuses": ["failed"]}])
    upto: int = Field(description="tasks with a greater id are not included")
    until: datetime = Field(description="nor are those that ended later")
    state: Literal["gathering", "moving", "done", "stopped"]
    asked: int = Field(description="tasks to be moved; it grows while they are gathered")
    done: int
    skipped: int = Field(description="tasks that no longer allowed the move")
    left: int
    skips: list[Skipped] = Field(description="the first of them")
    reasons: dict[str, int] = Field(
        description="how many were skipped for what reason, without its numbers and names",
        examples=[{"task # has its unique key '' by now": 3}],
    )
    trouble: str | None = Field(description="why the last step failed")
    by: str
    why: str | None
    created_at: datetime
    moving_since: datetime | None
    ended_at: datetime | None


class Bulks(Paged):
    bulks: list[Bulk]


@router.get("")
def list_bulks(query: PageOfIds, app: App, _: Reader) -> Bulks:
    """List bulks, newest first."""
    with app.database.reading() as connection:
        rows, more = query.read(lambda n: insights.bulks(connection, limit=n, before=query.after_id), itemgetter("id"))
    return Bulks.model_validate({"bulks": rows, "next": more})


@router.get("/{number}")
def get_bulk(number: IdInPath, app: App, _: Reader) -> Bulk:
    """Return a bulk with its progress."""
    with app.database.reading() as connection:
        return Bulk.model_validate(insights.bulk(connection, number))


@router.delete("/{number}")
def cancel_bulk(number: IdInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Stop a bulk after its current batch; moved tasks stay so. 409 if it is over."""
    return change(app, partial(bulks.stop, bulk=number, by=caller.name, why=body.why))
