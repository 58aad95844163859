"""The work to do, and the workers it takes."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from celeriac.api.app import Counted
from celeriac.api.callers import Reader
from celeriac.api.fields import RoleInPath
from celeriac.api.paging import Paged, PageOfNames
from celeriac.api.problems import first_of

router = APIRouter(prefix="/api/tasks/capacity", tags=["tasks"])


class WorkersNeeded(BaseModel):
    """Workers needed to clear the queue within each time; null while one worker's rate is unknown."""

    for_1_hour: int | None = Field(examples=[10])
    for_4_hours: int | None = Field(examples=[3])
    for_8_hours: int | None = Field(examples=[2])


class Capacity(BaseModel):
    role: str = Field(examples=["product_resync"])
    pending_tasks: int = Field(examples=[500])
    ready_tasks: int
    claimed_tasks: int
    running_tasks: int
    completed_last_hour: int
    failed_last_hour: int
    active_workers: int = Field(examples=[3])
    avg_duration_sec: float | None
    tasks_per_worker_hour: float | None
    estimated_hours_to_drain: float | None
    workers_needed: WorkersNeeded
    failed_rate: float | None = Field(description="of the last hour, 0 to 1; null: unknown")
    retry_success_rate: float | None
    average_wait: float | None = Field(description="seconds from when a task was due until it started")
    at_least: bool = Field(
        description="pending_tasks, and figures computed from it, may be more: counting stopped at 300,000"
    )


class Capacities(Paged):
    roles: list[Capacity]


@router.get("")
async def list_capacities(query: PageOfNames, _: Reader, figures: Counted) -> Capacities:
    """List every registered role, by name."""
    capacities, more = query.of(await figures.capacity(None), lambda one: (one["role"],))
    return Capacities.model_validate({"roles": capacities, "next": more})


@router.get("/{role}")
async def get_capacity(role: RoleInPath, _: Reader, figures: Counted) -> Capacity:
    """Return one role: what waits, how fast it goes, how many workers would clear it in 1, 4 and 8 hours."""
    return Capacity.model_validate(first_of(await figures.capacity(role), f"role {role!r}"))
