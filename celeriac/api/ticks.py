"""Ticks: the outcome of each instant of a schedule, and how late beat has been."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Reader
from celeriac.api.fields import IdInPath
from celeriac.api.paging import Paged, PageOfInstants, as_instant
from celeriac.api.system import AnswerModel, BoundedCount
from celeriac.errors import BadValue
from celeriac.schedules import operate

router = APIRouter(prefix="/api", tags=["scheduled jobs"])


class TickRecord(AnswerModel):
    """An instant and the task it made; or why it made none, for `left_out` instants from this one on."""

    due_at: datetime
    done_at: datetime
    late_seconds: float = Field(examples=[0.02])
    task_id: str | None = Field(description="null: it was skipped", examples=["nightly@2031-01-01T03:00:00Z"])
    is_new: bool = Field(description="false: an existing task stands for it", examples=[True])
    id: int | None = Field(description="the task's row; null: it is not kept", examples=[88123])
    status: str | None = Field(
        description="the task's status; `not kept`: it is over and no longer kept", examples=["completed"]
    )
    left_out: int = Field(description="instants that made no task", examples=[0])
    why: str | None = Field(description="why they did not", examples=[None])


class TickRecords(Paged):
    ticks: list[TickRecord]


class Lateness(AnswerModel):
    """Lateness in seconds: of schedules that are overdue now, and of the last 24 h's ticks that made a task."""

    now: float = Field(description="that of the most overdue schedule; 0: none is overdue", examples=[0.0])
    p95: float | None = Field(examples=[0.4])
    worst: float | None = Field(examples=[3.2])
    ticks: BoundedCount = Field(description="how many ticks the others are computed from; not exact: only the newest")


def _place(tick: dict[str, Any]) -> str:
    return " ".join(as_instant(tick[name]) for name in ("due_at", "done_at"))


def _before(after: str | None) -> tuple[datetime, datetime] | None:
    """Parse a place. Raises BadValue for instants that no calendar has."""
    if after is None:
        return None
    due, _, done = after.partition(" ")
    try:
        return datetime.fromisoformat(due), datetime.fromisoformat(done)
    except ValueError:
        raise BadValue(f"after={after!r:.100}: give the `next` of the page before") from None


@router.get("/admin/scheduled-jobs/{job}/ticks")
def list_ticks_of_scheduled_job(job: IdInPath, query: PageOfInstants, app: App, _: Reader) -> TickRecords:
    """List the outcomes of a schedule's instants, newest first: the last 60, and all of 24 h. Passes and sweeps have
    none.
    """
    before = _before(query.after)
    with app.database.reading() as connection:
        schedule = operate.get(connection, job)["id"]
        ticks, more = query.read(lambda n: insights.ticks_of(connection, schedule, limit=n, before=before), _place)
    return TickRecords.model_validate({"ticks": ticks, "next": more})


@router.get("/admin/scheduled-jobs/{job}/lateness")
def get_lateness_of_scheduled_job(job: IdInPath, app: App, _: Reader) -> Lateness:
    """Return how late the instants of a schedule were taken."""
    with app.database.reading() as connection:
        return Lateness.model_validate(insights.lateness(connection, operate.get(connection, job)["id"]))


@router.get("/lateness")
def get_lateness(app: App, _: Reader) -> Lateness:
    """Return how late the instants of all schedules were taken, which shows whether beat keeps up."""
    with app.database.reading() as connection:
        return Lateness.model_validate(insights.lateness(connection))
