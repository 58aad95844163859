"""`/api/admin/jobs`: tasks in the words of the crawl jobs (queued, crawling, success, failed)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from celeriac.api.app import App
from celeriac.api.callers import Operator
from celeriac.api.changes import Because, Changed, ManyChanged, many, one
from celeriac.api.fields import IdInPath, Ids, Priority
from celeriac.states import CRAWLS
from celeriac.verbs import steer

router = APIRouter(prefix="/api/admin/jobs", tags=["jobs"])

JobStatus = Literal["queued", "crawling", "success", "failed"]

#: What each word asks for; only its worker can bring a job to the other two.
_ASKED = {word: statuses[0] for word, statuses in CRAWLS.items()}


class ToStatus(Because):
    status: JobStatus = Field(
        description="queued retries, failed cancels; a worker alone makes the others", examples=["queued"]
    )


class ToPriority(Because):
    priority: Priority = Field(examples=[50])


class Boost(Because):
    boost: Annotated[int, Field(ge=1, le=1_000_000, examples=[20])]


class ManyToStatus(ToStatus):
    job_ids: Ids = Field(examples=[[1, 2, 3]])


class ManyJobs(Because):
    job_ids: Ids = Field(examples=[[1, 2, 3]])


@router.put("/bulk/status")
def set_status_of_many(body: ManyToStatus, app: App, caller: Operator) -> ManyChanged:
    """Each job that allows it; the answer says why others do not."""
    move = partial(steer.set_status, status=_ASKED[body.status], by=caller.name, why=body.why)
    return many(app, body.job_ids, move)


@router.post("/bulk/retry")
def retry_many(body: ManyJobs, app: App, caller: Operator) -> ManyChanged:
    """Failed jobs are queued again with all their attempts."""
    return many(app, body.job_ids, partial(steer.retry, by=caller.name, why=body.why))


@router.put("/{job}/status")
def set_status(job: IdInPath, body: ToStatus, app: App, caller: Operator) -> Changed:
    """409 if the life of a job does not allow it: a crawling one cannot be queued, nor a finished one fail."""
    return one(app, job, partial(steer.set_status, status=_ASKED[body.status], by=caller.name, why=body.why))


@router.put("/{job}/priority")
def set_priority(job: IdInPath, body: ToPriority, app: App, caller: Operator) -> Changed:
    """409 if it is finished, or its role does not take that priority."""
    return one(app, job, partial(steer.set_priority, priority=body.priority, by=caller.name, why=body.why))


@router.post("/{job}/boost")
def boost(job: IdInPath, body: Boost, app: App, caller: Operator) -> Changed:
    """Raises the priority, to 100 at most."""
    return one(app, job, partial(steer.boost, boost=body.boost, by=caller.name, why=body.why))


@router.post("/{job}/retry")
def retry(job: IdInPath, app: App, caller: Operator, body: Because | None = None) -> Changed:
    """A failed job is queued again with retry_count 0."""
    return one(app, job, partial(steer.retry, by=caller.name, why=body.why if body else ""))
