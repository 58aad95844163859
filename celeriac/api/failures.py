"""Kinds of failures: their groups, all tasks of a group, and people's marks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.fields import Name, Text
from celeriac.api.paging import AFTER, NUMBER, TEXT, IdQuery, Paged, Place, RoleQuery, ranks
from celeriac.api.system import AnswerModel
from celeriac.api.tasks import Tasks
from celeriac.insights.failures.failures import MOST as MOST_GROUPS
from celeriac.operate import PATIENCE
from celeriac.operate.failures import State, mark

router = APIRouter(prefix="/api", tags=["system"])


class FailureQuery(RoleQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, NUMBER, TEXT)] | None, AFTER] = None
    since: Annotated[float, Field(ge=0, le=1e9, description="only failures of the last so many seconds")] | None = None
    state: State | None = None


class FailedQuery(IdQuery):
    role: Name | None = None


class Mark(AnswerModel):
    """A mark on a kind of failure; open if nobody made one."""

    state: State = Field(description="a resolved one opens by itself when it fails again")
    note: str | None = Field(examples=["the store's API is down until Monday"])
    by: str | None
    at: datetime | None
    reopened: bool = Field(description="it was resolved, and failed again since")


class ToMark(BaseModel):
    state: State = Field(examples=["known"])
    note: Text = ""


class Marked(AnswerModel):
    fingerprint: str = Field(examples=["3f0c1b7a9e42"])
    before: Mapping[str, Any] | None = Field(examples=[{"state": "open", "note": None}])
    after: Mapping[str, Any] | None = Field(examples=[{"state": "known", "note": "until Monday"}])


class FailureGroup(AnswerModel):
    """A group of failures with the same role, exception and message, except for numbers and quoted texts."""

    fingerprint: str = Field(examples=["3f0c1b7a9e42"])
    role: str = Field(examples=["product_resync"])
    type: str | None = Field(examples=["HTTPStatusError"])
    message: str = Field(description="the newest one's first line")
    pattern: str = Field(description="the part that all messages share", examples=["HTTPStatusError: # of ''"])
    frame: str | None = Field(description="the innermost frame of their own code", examples=["stores.py:resync"])
    count: int = Field(examples=[412])
    last_hour: int
    first_seen: datetime = Field(description="of those that were read")
    last_seen: datetime
    tasks: list[int] = Field(description="the newest few")
    accounts: list[str] = Field(description="those hit most")
    accounts_in_all: int
    trend: list[int] = Field(description="how many in each of 24 equal parts of the time from `begin` to now")
    retrying: int = Field(
        description="tasks that failed in the same way and are tried again; those in `count` were given up"
    )
    mark: Mark


class Failures(Paged):
    groups: list[FailureGroup] = Field(description="the most frequent first")
    groups_in_all: int
    looked_at: int = Field(description="failures that were read, the newest by id", examples=[5000])
    reached_end: bool = Field(description="false: there are older ones, which were not read")
    begin: datetime | None = Field(
        description="when the trends begin: `since` ago, or with the oldest; null: no failure"
    )


@router.get("/failures")
def list_failures(query: Annotated[FailureQuery, Query()], app: App, _: Reader) -> Failures:
    """List the newest 5,000 failures in groups: how often they come, since when, and which accounts they hit."""
    with app.database.reading() as connection:
        failures = insights.failures(
            connection, role=query.role, since=query.since, limit=MOST_GROUPS, state=query.state
        )
    groups, more = query.of(failures.groups, lambda one: (-one.count, -one.last_seen.timestamp(), one.fingerprint))
    return Failures.model_validate({
        "groups": groups, "next": more, "groups_in_all": failures.groups_in_all, "looked_at": failures.looked_at,
        "reached_end": failures.reached_end, "begin": failures.begin,
    }, from_attributes=True)  # fmt: skip


@router.get("/failures/{fingerprint}/tasks")
def list_failed_tasks(
    fingerprint: Annotated[Name, Path()], query: Annotated[FailedQuery, Query()], app: App, _: Reader
) -> Tasks:
    """List all tasks of a group of failures, newest first. A page reads 20,000 failures at most, and may be short."""
    with app.database.reading() as connection:
        page = insights.failed_tasks(connection, fingerprint, role=query.role, limit=query.limit, after=query.after_id)
    return Tasks.model_validate({"tasks": page.items, "next": page.next})


@router.put("/failures/{fingerprint}")
def set_failure_state(fingerprint: Annotated[Name, Path()], body: ToMark, app: App, caller: Operator) -> Marked:
    """Mark a kind of failure as known, resolved, or open again. 404 if there is no failure of this kind."""
    with app.database.reading() as connection:
        insights.failing(connection, fingerprint, most=1)
    with app.database.transaction(patience=PATIENCE) as connection:
        done = mark(connection, fingerprint, body.state, by=caller.name, note=body.note)
    return Marked(fingerprint=fingerprint, before=done.before, after=done.after)
