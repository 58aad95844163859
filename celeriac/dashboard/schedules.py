"""Schedules: will they fire, did they fire, were they late? And the machinery: beats, sweeps, Redis."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import Sent
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.errors import ConfigurationError, Unknown
from celeriac.schedules import operate, written
from celeriac.schedules.expressions import parse

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]
Steerer = Annotated[Page, Depends(May("schedules"))]


#: Number of coming instants on a schedule's page, and of schedules in the list that show their last ticks.
UPCOMING, STRIPS = 5, 200


@router.get("/schedules")
def listed(page: Viewer) -> Response:
    page.ask()
    schedules = page.panel(insights.schedules)
    tasks = (
        schedules
        if schedules.stopped
        else Content([written.shown(row) for row in schedules.value if row["kind"] == "task"])
    )
    ids = [row["id"] for row in tasks.value or ()][:STRIPS]
    return page.show(
        "schedules.html", "Schedules", schedules=tasks, ticking=page.panel(insights.ticking, ids),
        beats=page.panel(insights.beats), lateness=page.panel(insights.lateness),
    )  # fmt: skip


@router.get("/schedules/{name:name}")
def shown(name: str, page: Viewer) -> Response:
    page.ask()
    schedule = next((row for row in page.read(insights.schedules) if row["name"] == name), None)
    if schedule is None:
        raise Unknown(f"there is no schedule {name!r}")
    trail = page.panel(insights.audit_trail, kind="schedule", target=str(schedule["id"]), limit=20)
    following, which = upcoming(schedule, page.site.reading.clock()), schedule["id"]
    return page.show(
        "schedule.html", f"Schedule {name}", schedule=written.shown(schedule), trail=trail, following=following,
        ticks=page.panel(insights.ticks_of, which), lateness=page.panel(insights.lateness, which),
        ticking=page.panel(insights.ticking, [which]),
        differs=written.differences(schedule),
    )  # fmt: skip


def upcoming(schedule: Mapping[str, Any], now: datetime) -> list[datetime]:
    """Return the schedule's next instants, if it stays as it is; on its own zone's clocks."""
    try:
        return coming(schedule["cron_expression"], schedule["timezone"], now, schedule["next_run_at"])
    except ConfigurationError:
        return []


def coming(expression: str, zone: str, now: datetime, planned: datetime | None = None) -> list[datetime]:
    """Return the next instants on that zone's clocks, from the planned one on. Raises ConfigurationError."""
    when = parse(expression, zone)
    first = (
        planned if planned is not None and planned > now else when.resume(planned, now) if planned else when.first(now)
    )
    instants = when.instants(first, datetime.max.replace(tzinfo=UTC), UPCOMING)
    return [at.astimezone(ZoneInfo(zone)) for at in instants]


@router.post("/switch-schedule/{name:name}")
def switch(name: str, page: Steerer, form: Sent) -> Response:
    def act() -> str:
        on = form["enabled"] == "yes"
        operate.toggle(page.celeriac, name, on, by=page.bearer.name, why=form["why"])
        return f"{name} is switched {'on' if on else 'off'}."

    return acts.done(page, page.to("schedules", name), act)


@router.post("/run-schedule/{name:name}")
def run(name: str, page: Steerer) -> Response:
    """Run it once, apart from its instants; not while its last task is unfinished."""

    def act() -> str:
        done = operate.run_now(page.celeriac, name, by=page.bearer.name)
        if done.ran:
            return f"{name} was run: {done.result}."
        return f"Nothing was enqueued: the last task of {name}, {done.result}, is unfinished."

    return acts.done(page, page.to("schedules", name), act)
