"""Capacity: how many workers do I need?"""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.errors import BadValue, Unknown

router = APIRouter()


@router.get("/capacity")
def capacity(page: Annotated[Page, Depends(May("view"))]) -> Response:
    """Of every role; with `role`, `workers` and `hours`, how one would be worked off."""
    asked = page.ask("role", "workers", "hours")
    found = page.panel(insights.capacity, figures=True)
    plan = None
    if "role" in asked and not found.stopped:
        row = next((row for row in found.value if row["role"] == asked["role"]), None)
        if row is None:
            raise Unknown(f"there is no role {asked['role']!r}")
        plan = plan_of(row, _number(asked, "workers", 0, 100_000), _number(asked, "hours", 0, 10_000))
    return page.show("capacity.html", "Capacity", capacity=found, plan=plan)


def plan_of(row: dict[str, Any], workers: float | None, hours: float | None) -> dict[str, Any]:
    """If nothing new came: how long so many workers take, and how many it takes to be done in so many hours."""
    pending, pace = row["pending_tasks"], row["tasks_per_worker_hour"]
    workers = row["active_workers"] if workers is None else workers
    lasts = pending / (pace * workers) if pace and workers else None
    needed = math.ceil(pending / (pace * hours)) if pace and hours else None
    finished = row["completed_last_hour"] + row["failed_last_hour"]
    return {"row": row, "workers": workers, "hours": hours, "lasts": lasts, "needed": needed, "rough": finished < 20}


def _number(asked: dict[str, str], name: str, low: float, high: float) -> float | None:
    """Raises BadValue."""
    if name not in asked:
        return None
    try:
        value = float(asked[name])
    except ValueError:
        value = math.nan
    if not low < value <= high:
        raise BadValue(f"{name}={asked[name]!r:.50}: give a number above {low:g}, at most {high:g}")
    return value
