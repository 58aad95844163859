"""`/api/tasks`: tasks, their outcomes, and their counts."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field

from celeriac import insights
from celeriac.api.app import App, Counted
from celeriac.api.callers import Operator, Reader
from celeriac.api.fields import Flag, Name, Number, Offset, RoleInPath, TaskInPath, Text
from celeriac.api.paging import Paged, PageOfEnded, TasksQuery
from celeriac.api.parameters import WITH_ARGUMENTS, Arguments
from celeriac.api.shared import SharedRoute
from celeriac.api.system import AnswerModel
from celeriac.insights import Filter
from celeriac.insights.fleet.condition import silent_workers
from celeriac.insights.tasks.conditions import MEANS, RANGE, Waits
from celeriac.insights.tasks.lists import OLDEST
from celeriac.insights.tasks.tasks import log_of
from celeriac.insights.why.checks import Outcome, Reason
from celeriac.repair.rescue import rescue

router = APIRouter(prefix="/api/tasks", tags=["tasks"], route_class=SharedRoute)

Status = Literal["pending", "claimed", "running", "completed", "failed", "cancelled"]

#: Status words: ours, the crawl jobs', the queue master's and the worker tasks'.
Word = Literal[
    "pending", "claimed", "running", "completed", "failed", "cancelled",
    "queued", "crawling", "success", "waiting", "delayed", "scheduled", "active", "terminated", "stale",
]  # fmt: skip

CheckName = Literal[
    "due", "role", "account", "members", "lock", "rate", "window", "cap", "turn", "redis", "passes", "ticket", "worker",
]  # fmt: skip


class TaskRecord(BaseModel):
    """A row, without its arguments and result. Times are the database's."""

    id: int = Field(examples=[7])
    task_id: str
    role: str = Field(examples=["product_resync"])
    account: str
    lock_key: str | None
    unique_key: str | None
    status: Status
    waits_for: Literal["time", "lock", "account", "members"] | None
    priority: int
    scheduled_for: datetime
    expires_at: datetime | None
    worker_id: str | None
    claimed_at: datetime | None
    started_at: datetime | None
    last_heartbeat_at: datetime | None
    cancel_requested_at: datetime | None
    completed_at: datetime | None
    progress: Any
    error_message: str | None
    retry_count: int
    max_retries: int | None
    tries: int
    max_rounds: int
    losses: int
    timeout: float | None
    parent_id: int | None
    enqueued_by: str | None
    created_at: datetime
    updated_at: datetime
    queue: str | None = Field(description="one one of those its role lists; null: the first")


class WholeTask(TaskRecord):
    """A row with its arguments and result."""

    args: list[Any]
    kwargs: dict[str, Any]
    result: Any


class Tasks(Paged):
    tasks: list[TaskRecord]


class Event(BaseModel):
    id: int
    at: datetime
    kind: str = Field(examples=["retry"])
    from_status: str | None
    to_status: str | None
    by: str | None
    why: str | None


class TaskHistory(BaseModel):
    task: WholeTask
    events: list[Event]
    ahead: int | None = Field(description="tasks that go first, at most 1,000 are counted")
    why: str | None = Field(description="what it waits for", examples=["its role is paused"])


class Check(BaseModel):
    """One check, and its answer."""

    name: CheckName = Field(examples=["account"])
    outcome: Outcome = Field(description="checks after a no are not made", examples=["no"])
    sentence: str = Field(examples=["its account is paused"])
    facts: dict[str, Any] = Field(examples=[{"account": "acme", "paused": True, "cap": None}])
    reason: Reason | None = Field(description="only for a no", examples=["account_paused"])


class TaskWhy(BaseModel):
    """The conditions for a task's start, in order; the first that does not hold is the reason."""

    task: TaskRecord
    headline: str = Field(examples=["its account is paused"])
    reason: Reason = Field(description="one word of a closed set", examples=["account_paused"])
    checks: list[Check]
    expected: datetime | None = Field(description="when it may start; null: unknown")
    basis: str = Field(
        description="the grounds for that, or why it is unknown",
        examples=["unknown, because nobody knows when that will be"],
    )
    next: str | None = Field(
        description="what it waits for", examples=["somebody to resume its account: celeriac accounts resume acme"]
    )
    ahead: int | None = Field(description="tasks that go first, at most 1,000 are counted")


class StatusCounts(BaseModel):
    """Counts by status; those in `estimated` are more than were counted."""

    pending: int = Field(examples=[45])
    claimed: int
    running: int
    completed: int
    failed: int
    cancelled: int
    estimated: list[Status]


class LastCompletion(BaseModel):
    role: str = Field(examples=["product_resync"])
    last_completion: datetime | None = Field(description="null: none is kept any more")
    task: int | None
    seconds: float | None = Field(description="how long it ran")


class Staleness(BaseModel):
    threshold_minutes: Annotated[Number | None, Field(ge=1, le=1_000_000)] = Field(
        default=None, description="silent for so long; by default each role's own `stale_after`", examples=[10]
    )
    dry_run: Flag = Field(default=False, description="only count them")


class Recovered(BaseModel):
    dry_run: bool
    matching: int = Field(description="running tasks of silent workers when it began", examples=[2])
    recovered: int = Field(examples=[2])


#: A body that may be left out.
HowStale = Annotated[Staleness, Body(default_factory=Staleness)]


class TaskFilter(BaseModel):
    """A filter of tasks; fields not given match anything."""

    status: list[Word] = Field(default=[], description=MEANS["status"])
    role: Annotated[Name, Field(description=MEANS["role"])] | None = None
    account: Annotated[Text, Field(description=MEANS["account"])] | None = None
    lock_key: Annotated[Text, Field(description=MEANS["lock_key"])] | None = None
    unique_key: Annotated[Text, Field(description=MEANS["unique_key"])] | None = None
    worker_id: Annotated[Text, Field(description=MEANS["worker_id"])] | None = None
    waits_for: Annotated[Waits, Field(description=MEANS["waits_for"])] | None = None
    older_than: Annotated[float, Field(ge=0, le=OLDEST, description=MEANS["older_than"])] | None = None
    newer_than: Annotated[float, Field(ge=0, le=OLDEST, description=MEANS["newer_than"])] | None = None
    error: Annotated[Text, Field(description=MEANS["error"])] | None = None
    priority: Annotated[str, Field(pattern=RANGE, description=MEANS["priority"])] | None = None
    schedule: Annotated[Name, Field(description=MEANS["schedule"])] | None = None
    queue: Annotated[Name, Field(description=MEANS["queue"])] | None = None

    def as_filter(self) -> Filter:
        return Filter.of(self.status, **self.model_dump(include={field.name for field in fields(Filter)}))


class TaskQuery(TasksQuery, TaskFilter):
    model_config = ConfigDict(extra="ignore")  # `arg.…`; any other unknown parameter is refused before this

    offset: Offset = 0


@router.get("", openapi_extra=WITH_ARGUMENTS)
def list_tasks(query: Annotated[TaskQuery, Query()], arguments: Arguments, app: App, _: Reader) -> Tasks:
    """List tasks, newest first. `after` (a page's `next`) costs the same however far it leads; `offset` is bounded."""
    with app.database.reading() as connection:
        wanted = replace(query.as_filter(), arguments=arguments)
        page = insights.list_tasks(connection, wanted, limit=query.limit, after=query.after, offset=query.offset)
    return Tasks(tasks=[TaskRecord.model_validate(item) for item in page.items], next=page.next)


@router.get("/counts")
async def count_tasks(_: Reader, figures: Counted, role: Name | None = None) -> StatusCounts:
    """Count tasks by status, of a role or of all: claimed and running exactly, the others up to 50,000, which is also
    the answer if there are more.
    """
    counts = await figures.counts(role)
    estimated = [status for status, count in counts.items() if not count.exact]
    return StatusCounts.model_validate({status: count.n for status, count in counts.items()} | {"estimated": estimated})


@router.post("/recover-stale")
def recover_stale_tasks(app: App, caller: Operator, body: HowStale) -> Recovered:
    """Make running tasks whose worker fell silent wait again; they fail if they were lost too often. With `dry_run`
    true, only count them.
    """
    minutes = body.threshold_minutes
    with app.database.reading() as connection:
        silent = silent_workers(connection, None if minutes is None else minutes * 60)
    done = 0 if body.dry_run else rescue(app, minutes=minutes, operator=caller.name)
    return Recovered(dry_run=body.dry_run, matching=sum(one.tasks for one in silent), recovered=done)


@router.get("/role/{role}/last-completion")
def get_last_completion(role: RoleInPath, app: App, _: Reader) -> LastCompletion:
    """Return when a task of the role last succeeded."""
    with app.database.reading() as connection:
        last = insights.last_completion(connection, role) or {}
    return LastCompletion(
        role=role, last_completion=last.get("completed_at"), task=last.get("id"), seconds=last.get("seconds")
    )


@router.get("/role/{role}/recent")
def list_recent_completions(role: RoleInPath, query: PageOfEnded, app: App, _: Reader) -> Tasks:
    """List the role's last successes, newest first."""
    wanted = Filter(role=role, statuses=["completed"])
    with app.database.reading() as connection:
        page = insights.list_tasks(connection, wanted, limit=query.limit, after=query.after)
    return Tasks(tasks=[TaskRecord.model_validate(item) for item in page.items], next=page.next)


@router.get("/{task}")
def get_task(task: TaskInPath, app: App, _: Reader) -> WholeTask:
    """Return a task with its arguments and result."""
    with app.database.reading() as connection:
        return WholeTask.model_validate(insights.get(connection, task))


@router.get("/{task}/history")
def get_task_history(task: TaskInPath, app: App, _: Reader) -> TaskHistory:
    """Return a task's events, how many tasks go before it, and why it does not run yet."""
    with app.database.reading() as connection:
        return TaskHistory.model_validate(insights.history(connection, task, app.probe), from_attributes=True)


class LogLine(AnswerModel):
    attempt: int = Field(examples=[1])
    at: datetime
    level: str = Field(examples=["INFO"])
    line: str = Field(examples=["page 7 of 12"])


class TaskLogLines(BaseModel):
    lines: list[LogLine]


@router.get("/{task}/log")
def get_task_log(task: TaskInPath, app: App, _: Reader) -> TaskLogLines:
    """Return the lines that its handler wrote to `self.log`: the last 1,000, in order."""
    with app.database.reading() as connection:
        lines = log_of(connection, insights.row_of(connection, task))
    return TaskLogLines.model_validate({"lines": lines}, from_attributes=True)


@router.get("/{task}/why")
def explain_task(task: TaskInPath, app: App, _: Reader) -> TaskWhy:
    """Explain why a task has not started: check by check, up to the first "no"."""
    with app.database.reading() as connection:
        row = insights.row_of(connection, task)
    return TaskWhy.model_validate(app.why(row), from_attributes=True)
