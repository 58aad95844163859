"""Workers: those that are no Celery worker report here; any can be told to end."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from celeriac.api.app import App
from celeriac.api.callers import Operator
from celeriac.api.changes import Because, Changed, change
from celeriac.api.fields import Name
from celeriac.errors import IllegalMove, Unknown
from celeriac.verbs import audit, heartbeat
from celeriac.verbs.audit import Change

router = APIRouter(prefix="/api/workers", tags=["workers"])


class Heartbeat(BaseModel):
    """What a worker says of itself every so often."""

    worker_id: Name = Field(examples=["worker-abc123"])
    hostname: Name = Field(examples=["node-7"])
    pid: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    queues: Annotated[list[Name], Field(max_length=1000)] = []
    max_concurrent_tasks: Annotated[int, Field(ge=1, le=100_000)] = 1
    status: Literal["active", "draining", "stopped"] = "active"
    resources: dict[str, Any] = {}


class Standing(BaseModel):
    status: Literal["active", "draining", "stopped"] = Field(description="draining: it is asked to finish and end")


@router.post("/heartbeat")
def report(body: Heartbeat, app: App, _: Operator) -> Standing:
    """Says it lives, and hears whether it is to end. A Celery worker reports by itself."""
    given = body.model_dump()
    state = heartbeat.WorkerState(concurrency=given.pop("max_concurrent_tasks"), **given)
    with app.database.statement() as connection:
        return Standing.model_validate({"status": heartbeat.report(connection, state)})


@router.post("/{worker_id:path}/decommission")
def decommission(
    worker_id: Annotated[Name, Path()], app: App, caller: Operator, body: Because | None = None
) -> Changed:
    """It takes nothing more, finishes what it has, and ends; it hears of it with its next heartbeat."""
    return change(app, lambda c: _decommission(c, worker_id, by=caller.name, why=body.why if body else ""))


def _decommission(connection: Connection, worker_id: str, *, by: str, why: str) -> Change:
    was = heartbeat.decommission(connection, worker_id)
    if was is None:
        raise Unknown(f"there is no worker {worker_id!r}")
    if was == "stopped":
        raise IllegalMove(f"the worker {worker_id!r} has stopped; nothing was changed")
    made = Change(worker_id, {"status": was}, {"status": "draining"})
    audit.write(connection, "decommission", "worker", [made], by=by, why=why)
    return made
