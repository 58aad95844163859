"""`/api/admin/jobs`: tasks in the words of the crawl jobs (queued, crawling, success, failed)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from celeriac import insights
from celeriac.api.app import App, Counted
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Because, Changed, ManyChanged, Reason, ToPriority, many, one
from celeriac.api.fields import Ids, Name, Offset, TaskInPath, Whole
from celeriac.api.paging import Paged, TasksQuery
from celeriac.api.parameters import WITH_ARGUMENTS, Arguments
from celeriac.api.shared import SharedRoute
from celeriac.api.tasks import Word
from celeriac.operate import steer
from celeriac.roles.bounds import ANY_PRIORITY
from celeriac.store.states import CRAWLS, WAITS_FOR_TIME, WORDS, crawl_word

router = APIRouter(prefix="/api/admin/jobs", tags=["jobs"], route_class=SharedRoute)

#: The role that is listed and counted where a request names none.
ROLE = "crawl_subreddit"

JobStatus = Literal["queued", "crawling", "success", "failed"]

#: The statuses of each word here; the crawl jobs' own meaning goes first: their `failed` includes cancelled ones.
_MEANS = WORDS | CRAWLS

#: The status that each word requests; most can only be set by the job's worker.
_ASKED = {word: statuses[0] for word, statuses in _MEANS.items()}


class Job(BaseModel):
    id: int = Field(examples=[7])
    role: str = Field(examples=["crawl_subreddit"])
    unique_key: str | None = Field(description="what it is about: a crawl's is its subreddit's id", examples=["1"])
    status: JobStatus
    priority: int
    retry_count: int
    max_retries: int | None
    visible_at: datetime = Field(description="not claimed before")
    next_retry_at: datetime | None
    last_attempt: datetime | None
    duration_ms: int | None
    error_message: str | None
    enqueued_by: str | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, task: Mapping[str, Any]) -> Job:
        same = {name: task[name] for name in cls.model_fields.keys() & task.keys()}
        waits = task["waits_for"] == WAITS_FOR_TIME and task["retry_count"] > 0
        began, ended = task["started_at"], task["completed_at"]
        return cls(
            **same | {"status": crawl_word(task["status"])},
            visible_at=task["scheduled_for"],
            next_retry_at=task["scheduled_for"] if waits else None,
            last_attempt=began,
            duration_ms=round((ended - began).total_seconds() * 1000) if began and ended else None,
        )


class Jobs(Paged):
    jobs: list[Job]


class JobStats(BaseModel):
    """Counts of jobs. `failed` includes cancelled ones. Those in `estimated` are more than were counted."""

    queued: int = Field(examples=[45])
    running: int
    completed: int
    failed: int
    estimated: list[str]


class JobQuery(TasksQuery):
    model_config = ConfigDict(extra="ignore")  # as in `tasks.TaskQuery`

    status: Word | None = None
    role: Name | None = None
    offset: Offset = 0


#: The statistics' names of the statuses.
_STATS = {"queued": "queued", "running": "crawling", "completed": "success", "failed": "failed"}


@router.get("/stats")
async def get_job_stats(_: Reader, figures: Counted, role: Name | None = None) -> JobStats:
    """Count the jobs in each status: of a role, or else of the crawls."""
    by_status = await figures.counts(role or ROLE)
    counts = {name: sum(by_status[status].n for status in CRAWLS[word]) for name, word in _STATS.items()}
    estimated = [name for name, word in _STATS.items() if not all(by_status[status].exact for status in CRAWLS[word])]
    return JobStats.model_validate(counts | {"estimated": estimated})


@router.get("", openapi_extra=WITH_ARGUMENTS)
def list_jobs(query: Annotated[JobQuery, Query()], arguments: Arguments, app: App, _: Reader) -> Jobs:
    """List jobs, newest first, of one status or all, of a role or else the crawls. `after` leads on at the same cost;
    `offset` is bounded.
    """
    words = () if query.status is None else _MEANS[query.status] if query.status in CRAWLS else (query.status,)
    wanted = insights.Filter.of(words, role=query.role or ROLE, arguments=arguments)
    with app.database.reading() as connection:
        page = insights.list_tasks(connection, wanted, limit=query.limit, after=query.after, offset=query.offset)
    return Jobs(jobs=[Job.of(item) for item in page.items], next=page.next)


@router.get("/{job}")
def get_job(job: TaskInPath, app: App, _: Reader) -> Job:
    """Return one job."""
    with app.database.reading() as connection:
        return Job.of(insights.get(connection, job))


class ToStatus(Because):
    status: Word = Field(
        description="queued retries, failed cancels; a worker alone makes the others", examples=["queued"]
    )


class Boost(Because):
    boost: Annotated[int, Whole(1, ANY_PRIORITY[1]), Field(examples=[20])]


class ManyToStatus(ToStatus):
    job_ids: Ids = Field(examples=[[1, 2, 3]])


class ManyJobs(Because):
    job_ids: Ids = Field(examples=[[1, 2, 3]])


@router.put("/bulk/status")
def set_status_of_jobs(body: ManyToStatus, app: App, caller: Operator) -> ManyChanged:
    """Set the status of each job that allows it; the answer says why others do not."""
    move = partial(steer.set_status, status=_ASKED[body.status], by=caller.name, why=body.why)
    return many(app, body.job_ids, move)


@router.post("/bulk/retry")
def retry_jobs(body: ManyJobs, app: App, caller: Operator) -> ManyChanged:
    """Queue failed jobs again with all their attempts."""
    return many(app, body.job_ids, partial(steer.retry, by=caller.name, why=body.why))


@router.put("/{job}/status")
def set_job_status(job: TaskInPath, body: ToStatus, app: App, caller: Operator) -> Changed:
    """Set a job's status. 409 if its life does not allow it: crawling ones are not queued, finished ones never fail."""
    return one(app, job, partial(steer.set_status, status=_ASKED[body.status], by=caller.name, why=body.why))


@router.put("/{job}/priority")
def set_job_priority(job: TaskInPath, body: ToPriority, app: App, caller: Operator) -> Changed:
    """Set a job's priority. 409 if it is finished, or its role does not take that priority."""
    return one(app, job, partial(steer.set_priority, priority=body.priority, by=caller.name, why=body.why))


@router.post("/{job}/boost")
def boost_job(job: TaskInPath, body: Boost, app: App, caller: Operator) -> Changed:
    """Raise a job's priority, to 100 at most."""
    return one(app, job, partial(steer.boost, boost=body.boost, by=caller.name, why=body.why))


@router.post("/{job}/retry")
def retry_job(job: TaskInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Queue a failed job again with retry_count 0."""
    return one(app, job, partial(steer.retry, by=caller.name, why=body.why))
