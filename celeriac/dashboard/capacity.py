"""Capacity: how many workers does a backlog need, and how many tasks fit into a worker's memory?"""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard.guard import Viewer
from celeriac.errors import BadValue, Unknown
from celeriac.insights.fleet.capacity import Drain, drain
from celeriac.worker.limits import limit_for, tasks_that_fit

router = APIRouter()


@router.get("/capacity")
def capacity(page: Viewer) -> Response:
    """Show all roles; with `role`, `workers` and `hours` a role's forecast; and how many tasks fit into memory."""
    asked = page.ask("role", "workers", "hours", "task_mb", "pod_mb")
    roles = page.panel(insights.capacity, figures=True)
    plan, flow = None, None
    fits = _fits(_number(asked, "task_mb", 0, 1e6), _number(asked, "pod_mb", 0, 1e8))
    if "role" in asked and not roles.stopped:
        row = next((row for row in roles.value if row["role"] == asked["role"]), None)
        if row is None:
            raise Unknown(f"there is no role {asked['role']!r}")
        flow = page.panel(insights.flow, "1h", row["role"])
        plan = plan_of(row, _number(asked, "workers", 0, 100_000), _number(asked, "hours", 0, 10_000))
    drained = None if plan is None or flow is None or flow.stopped else drained_of(plan, flow.value)
    return page.show("capacity.html", "Capacity", capacity=roles, plan=plan, drained=drained, fits=fits)


def drained_of(plan: dict[str, Any], flow: insights.Flow) -> Drain | None:
    """Return the forecast; None if a worker's rate is unknown, or arrivals are, as for roles that keep no successes."""
    pace = plan["row"]["tasks_per_worker_hour"]
    if not pace or flow.is_partial:
        return None
    come = sum(step.enqueued or 0 for step in flow.steps)
    return drain(plan["row"]["pending_tasks"], come, pace, plan["workers"], plan["hours"])


def _fits(task_mb: float | None, pod_mb: float | None) -> dict[str, float] | None:
    """Return how many tasks with `task_mb` of memory each fit into a pod at once, and the memory they need."""
    if task_mb is None or pod_mb is None:
        return None
    n = tasks_that_fit(pod_mb, task_mb)
    return {"task_mb": task_mb, "pod_mb": pod_mb, "tasks": n, "needs": limit_for(n, task_mb)}


def plan_of(row: dict[str, Any], workers: float | None, hours: float | None) -> dict[str, Any]:
    """Plan without new arrivals: the hours that so many workers take, and the workers that so many hours need."""
    pending, pace = row["pending_tasks"], row["tasks_per_worker_hour"]
    workers = row["active_workers"] if workers is None else workers
    lasts = pending / (pace * workers) if pace and workers else None
    needed = math.ceil(pending / (pace * hours)) if pace and hours else None
    finished = row["completed_last_hour"] + row["failed_last_hour"]
    return {"row": row, "workers": workers, "hours": hours, "lasts": lasts, "needed": needed, "rough": finished < 20}


def _number(asked: dict[str, str], name: str, low: float, high: float) -> float | None:
    """Return a number of the query, None without one. Raises BadValue."""
    if name not in asked:
        return None
    try:
        value = float(asked[name])
    except ValueError:
        value = math.nan
    if not low < value <= high:
        raise BadValue(f"{name}={asked[name]!r:.50}: give a number above {low:g}, at most {high:g}")
    return value
