"""Workers: those that are not Celery's report here; each can be decommissioned."""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import AfterValidator, BaseModel, Field

from celeriac import insights
from celeriac.api.app import App, write
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Changed, Reason, change
from celeriac.api.fields import Called, Name, Whole
from celeriac.api.paging import Paged, PageOf
from celeriac.api.problems import first_of
from celeriac.api.system import AnswerModel, BoundedCount
from celeriac.operate.workers import decommission as ask_to_end
from celeriac.operate.workers import resume as let_go_on
from celeriac.run import lease, reported
from celeriac.store.encoding import encoded

WorkerStatus = Literal["active", "draining", "stopped"]

WorkerInPath = Annotated[Name, Path(examples=["celery@node-7:12"])]

router = APIRouter(prefix="/api/workers", tags=["workers"])


#: The most bytes of JSON in a worker's report of its resources; the list of workers reads all of them.
MOST_RESOURCES = 8_192


def _is_small(resources: dict[str, Any]) -> dict[str, Any]:
    encoded(resources, MOST_RESOURCES)
    return resources


class Heartbeat(BaseModel):
    """A worker's report, to be sent regularly."""

    worker_id: Called = Field(examples=["worker-abc123"])
    hostname: Name | None = Field(default=None, description="by default its worker_id", examples=["node-7"])
    pid: Annotated[int, Whole(0, 2**31 - 1)] = 0
    queues: Annotated[list[Name], Field(max_length=100)] = []
    max_concurrent_tasks: Annotated[int, Whole(1, 100_000)] = 1
    status: WorkerStatus = "active"
    resources: Annotated[dict[str, Any], AfterValidator(_is_small)] = Field(
        default_factory=dict, description=f"at most {MOST_RESOURCES} bytes of JSON", examples=[{"memory_mb": 256}]
    )

    version: Name | None = Field(default=None, description="of its code", examples=["0.1.0"])

    def state(self) -> lease.WorkerState:
        report = self.model_dump() | {"hostname": self.hostname or self.worker_id}
        return lease.WorkerState(concurrency=report.pop("max_concurrent_tasks"), **report)


class WorkerRecord(BaseModel):
    worker_id: str = Field(examples=["celery@node-7:12"])
    hostname: str
    pid: int
    queues: list[str]
    concurrency: int
    status: WorkerStatus
    resources: dict[str, Any]
    version: str | None = Field(description="of its code", examples=["0.1.0 (deployment 7)"])
    reported_by: str | None = Field(description="the token that reports it; null: a Celery worker")
    started_at: datetime
    last_heartbeat_at: datetime
    heartbeat_age: float = Field(description="seconds")
    task_ids: list[int] = Field(description="what it runs")
    done_last_hour: BoundedCount = Field(description="kept tasks that it ended; not exact: at least so many")


class WorkerMinute(AnswerModel):
    """A worker's use of resources in a minute."""

    minute: datetime
    memory_percent: float | None = Field(examples=[65.0])
    cpu_percent: float | None = Field(examples=[45.0])
    backoff_reason: str | None = Field(
        description="why it backed off at some time in it", examples=["Memory at 87.3 %, threshold 85 %"]
    )


class WorkerHour(BaseModel):
    """A worker's last hour; minutes in which it did not report are missing."""

    worker_id: str = Field(examples=["celery@node-7:12"])
    minutes: list[WorkerMinute] = Field(description="oldest first")


class Workers(Paged):
    workers: list[WorkerRecord]


class LastHeartbeat(BaseModel):
    """A worker's last report."""

    worker_id: str = Field(examples=["celery@node-7:12"])
    current_task_id: int | None
    current_task_ids: list[int]
    active_task_count: int
    max_concurrent_tasks: int
    status: WorkerStatus
    resources: dict[str, Any]


class HeartbeatReply(BaseModel):
    status: WorkerStatus = Field(description="draining: it is requested to finish and end", examples=["active"])


@router.get("")
def list_workers(query: PageOf, app: App, _: Reader) -> Workers:
    """List workers that report, or did lately, with what each runs; by name."""
    after = query.after or ""
    with app.database.reading() as connection:
        rows, more = query.read(
            lambda n: insights.workers_by_name(connection, limit=n, after=after), itemgetter("worker_id")
        )
        done = insights.done_by_worker(connection)
    workers = [one | {"done_last_hour": done.get(one["worker_id"], insights.Count(0))} for one in rows]
    return Workers.model_validate({"workers": workers, "next": more})


@router.get("/{worker_id:name}/hour")
def get_worker_hour(worker_id: WorkerInPath, app: App, _: Reader) -> WorkerHour:
    """Return what a worker used and when it backed off, minute by minute. Empty if it has not reported in an hour."""
    with app.database.reading() as connection:
        minutes = insights.worker_hour(connection, worker_id)
    return WorkerHour.model_validate({"worker_id": worker_id, "minutes": minutes}, from_attributes=True)


@router.get("/{worker_id:name}/heartbeat")
def get_worker_heartbeat(worker_id: WorkerInPath, app: App, _: Reader) -> LastHeartbeat:
    """Return a live worker's last report, with what it runs now."""
    with app.database.reading() as connection:
        heartbeats = insights.heartbeats(connection, worker_id)
    return LastHeartbeat.model_validate(first_of(heartbeats, f"live worker {worker_id!r}"))


@router.post("/heartbeat")
def report_heartbeat(body: Heartbeat, app: App, caller: Operator) -> HeartbeatReply:
    """Report that a worker lives; the answer says whether it has to end. Celery's workers report by themselves: 409 for
    the row of a live one, or of another token's.
    """
    state = body.state()
    status = write(app, lambda connection: reported.report(connection, state, by=caller.name))
    return HeartbeatReply.model_validate({"status": status})


@router.post("/{worker_id:name}/decommission")
def decommission_worker(worker_id: WorkerInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Request a worker to take nothing more, finish its tasks, and end; its next heartbeat reads that."""
    return change(app, lambda c: ask_to_end(c, worker_id, by=caller.name, why=body.why))


@router.post("/{worker_id:name}/resume")
def resume_worker(worker_id: WorkerInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Withdraw a decommission. 409 once the worker has read it: then it ends."""
    return change(app, lambda c: let_go_on(c, worker_id, by=caller.name, why=body.why))
