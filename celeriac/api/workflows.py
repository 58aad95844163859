"""`/api/workflows`: chains, groups and chords as a whole, found by their own id or that of any of their parts."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Reason
from celeriac.api.fields import Name, TaskName
from celeriac.api.paging import IdQuery, Paged, PageOfNames
from celeriac.api.system import AnswerModel
from celeriac.api.tasks import Status, Word
from celeriac.operate import PATIENCE, workflows
from celeriac.operate.steer import Steered

router = APIRouter(prefix="/api/workflows", tags=["workflows"])

WorkflowInPath = Annotated[
    TaskName, Path(description="its id, or the id or task_id of any of its parts", examples=["7"])
]


class Node(AnswerModel):
    """All parts of a role that hold back the same body: a group of 100,000 members is one node."""

    role: str = Field(examples=["price"])
    barrier: UUID | None = Field(
        description="the barrier they deliver to or hold shut; null: nothing waits for them together"
    )
    counts: dict[Status, int] = Field(examples=[{"completed": 640, "running": 8, "pending": 352}])
    body: int | None = Field(description="a task that waits, or waited, for them")


class Edge(AnswerModel):
    """An edge from one node to another, by their places in `nodes`."""

    source: int = Field(examples=[0])
    target: int = Field(examples=[1])
    kind: Literal["members", "link"] = Field(description="members: the target waits for all parts of the source")


class Workflow(AnswerModel):
    """A workflow. All members of a group count from the beginning, a chain's links once the one before has ended."""

    id: str
    state: Literal["running", "completed", "failed", "cancelled"]
    done: int = Field(examples=[640])
    total: int = Field(examples=[1001])
    counts: dict[Status, int]
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None = Field(description="null: a part is unfinished")
    nodes: list[Node]
    edges: list[Edge]
    left_out: int = Field(description="nodes that are not shown: only the first 200 are")


class UnderWay(AnswerModel):
    """A running workflow. Counts stop at 1,000: then it has that many or more."""

    id: str = Field(examples=["7f1c"])
    role: str = Field(description="that of its first unfinished part", examples=["price"])
    created_at: datetime = Field(description="of that part")
    unfinished: int = Field(examples=[360])
    finished: int = Field(description="as long as they are kept", examples=[640])


class WorkflowList(Paged):
    workflows: list[UnderWay]


class WorkflowPart(BaseModel):
    """A task of a workflow; `/api/tasks/{task}` has all of it."""

    id: int = Field(examples=[7])
    task_id: str
    role: str = Field(examples=["price"])
    account: str
    status: Status
    waits_for: Literal["time", "lock", "account", "members"] | None
    awaits: UUID | None = Field(description="for a body: the barrier of the members it waits, or waited, for")
    barrier: UUID | None = Field(description="the barrier it delivers to or holds shut")
    body: int | None = Field(description="a task that waits, or waited, at its barrier")
    place: int | None = Field(description="the place of its result there; null: it only holds the barrier shut")
    parent_id: int | None = Field(description="the part before it, or the one that enqueued it")
    worker_id: str | None
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error_message: str | None


class WorkflowParts(Paged):
    tasks: list[WorkflowPart]


class WorkflowPartQuery(IdQuery):
    status: list[Word] = Field(default_factory=list)
    role: Name | None = None
    barrier: UUID | None = None


class Cancelled(BaseModel):
    """The cancelled parts. Finished parts, and those already requested to stop, are in neither count."""

    cancelled: int = Field(examples=[352])
    asked: int = Field(description="running parts, whose workers are requested to stop them", examples=[8])


@router.get("")
def list_workflows(query: PageOfNames, app: App, _: Reader) -> WorkflowList:
    """List workflows that have an unfinished part, by id."""
    (behind,) = (None,) if query.after is None else json.loads(query.after)
    with app.database.reading() as connection:
        under_way, after = query.read(
            lambda n: insights.workflows_under_way(connection, limit=n, after=behind),
            lambda last: json.dumps([last.id], ensure_ascii=False),
        )
    return WorkflowList(workflows=[UnderWay.model_validate(one) for one in under_way], next=after)


@router.get("/{workflow}")
def get_workflow(workflow: WorkflowInPath, app: App, _: Reader) -> Workflow:
    """Return a workflow's progress and shape."""
    with app.database.reading() as connection:
        return Workflow.model_validate(insights.workflow(connection, workflow))


@router.get("/{workflow}/tasks")
def list_workflow_tasks(
    workflow: WorkflowInPath, query: Annotated[WorkflowPartQuery, Query()], app: App, _: Reader
) -> WorkflowParts:
    """List its parts, newest first; with `role` and `barrier` those of a node."""
    barrier = None if query.barrier is None else str(query.barrier)
    with app.database.reading() as connection:
        page = insights.workflow_tasks(
            connection, workflow, statuses=query.status, role=query.role, barrier=barrier, limit=query.limit,
            after=query.after,
        )  # fmt: skip
    return WorkflowParts(tasks=[WorkflowPart.model_validate(item) for item in page.items], next=page.next)


@router.post("/{workflow}/cancel")
def cancel_workflow(workflow: WorkflowInPath, app: App, caller: Operator, body: Reason) -> Cancelled:
    """Cancel all unfinished parts; no new part begins from then on. Repeating it changes nothing."""
    with app.database.reading() as connection:
        label = insights.workflow_of(connection, workflow)
    some = workflows.cancel(app.database, label, by=caller.name, why=body.why, patience=PATIENCE)
    done = sum(some, Steered())
    return Cancelled(cancelled=len(done.changed) - done.asked, asked=done.asked)
