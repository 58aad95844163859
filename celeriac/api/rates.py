"""Rates: how many tasks succeed, how many are tried again, how long tasks wait and run."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from celeriac.api.app import Counted
from celeriac.api.callers import Reader
from celeriac.api.fields import RoleInPath
from celeriac.api.paging import Paged, PageOfNames
from celeriac.api.problems import first_of

router = APIRouter(prefix="/api/tasks/metrics", tags=["tasks"])


class Metrics(BaseModel):
    """A role's metrics. Rates and means are of the last hour; null without data."""

    role: str = Field(examples=["instasite_build"])
    queue_depth: int = Field(description="tasks that wait or are claimed", examples=[340])
    success_rate: float | None = Field(description="0 to 1", examples=[0.95])
    failed_rate: float | None
    retry_rate: float | None = Field(description="the share of ended tasks that were tried again", examples=[0.05])
    retry_success_rate: float | None = Field(description="the share of these that succeeded")
    average_wait: float | None = Field(description="seconds from when a task was due until it began")
    average_run: float | None = Field(description="seconds of work per task", examples=[45.0])
    longest_running: float | None = Field(description="seconds")
    priorities: dict[int, int] = Field(description="queued tasks by priority, in tens")


class MetricsOfRoles(Paged):
    roles: list[Metrics]


@router.get("")
async def list_metrics(query: PageOfNames, _: Reader, figures: Counted) -> MetricsOfRoles:
    """List every registered role, by name."""
    metrics, more = query.of(await figures.metrics(None), lambda one: (one["role"],))
    return MetricsOfRoles.model_validate({"roles": metrics, "next": more})


@router.get("/{role}")
async def get_metrics_of_role(role: RoleInPath, _: Reader, figures: Counted) -> Metrics:
    """Return one role: its queue, the last hour's rates and means, and its waiting tasks by priority."""
    return Metrics.model_validate(first_of(await figures.metrics(role), f"role {role!r}"))
