"""The overview: is anything wrong, and where? And the box that jumps to a named thing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.alerts.judgement import judge
from celeriac.alerts.review import LATE, looks_of
from celeriac.dashboard import words
from celeriac.dashboard.first import first_steps
from celeriac.dashboard.gone import is_an_id
from celeriac.dashboard.guard import May
from celeriac.dashboard.health import MEANS, health
from celeriac.dashboard.page import Elsewhere, Page
from celeriac.dashboard.reading import Content
from celeriac.dashboard.verdict import by_rule, concerns, soon, verdict
from celeriac.insights.failures.burning import Burning, burning
from celeriac.insights.fleet.one_role import Pace, pace
from celeriac.operate.policies import is_known

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]

WORST_FIRST = tuple(MEANS)

#: The span that the chart shows by default.
USUAL_SPAN = "1h"

#: Maximum number of rules with findings, and of roles, on the first screen. Further findings are folded; further roles
#: are on their own page.
MOST_RULES, MOST_ROLES = 3, 6

#: The number to which a role's backlog is counted in each state table, to estimate how long it will take.
COUNTED = 100_000

#: After how many intervals (CELERIAC_SWEEP_INTERVAL_MS) without a check it is unknown whether anything should alert.
UNSEEN = 2 * LATE

#: The page on which an alert of this kind is cured: that of its subject, or one for all.
CURES = {
    **dict.fromkeys(("missed_schedule", "skipped_instants", "failing_sweep"), ("schedules", True)),
    **dict.fromkeys(
        (
            "queue_depth", "flood", "fails_now", "slow_role", "failed_rate", "long_running", "no_worker",
            "idle_while_ready", "long_wait", "unfair", "lost_tickets", "late_finish",
        ),
        ("roles", True),
    ),
    **dict.fromkeys(
        ("dead_worker", "short_of_memory", "drains_on", "clocks_apart", "old_worker"), ("workers", False)
    ),
    "account_fails": ("accounts", True), "stuck_key": ("locks", True),
    "dead_letters": ("dead-letters", False),
}  # fmt: skip


@router.get("/")
@router.get("/overview")
def overview(page: Viewer) -> Response:
    span = page.ask("span").get("span", USUAL_SPAN)
    panels = page.at_once(
        roles=partial(roles, page), alerts=partial(page.panel, insights.firing),
        counts=partial(page.panel, insights.counts), workers=partial(page.panel, insights.workers),
        beats=partial(page.panel, insights.beats), flow=partial(page.panel, insights.flow, span),
        lengths=partial(page.panel, insights.lengths),
        pending=partial(page.panel, insights.pending_alerts),
        looks=partial(page.panel, insights.looks, looks_of(page.celeriac.main, page.celeriac.alerts)),
        hour=partial(page.panel, insights.last_hour),
        judged=partial(page.panel, judge, page.celeriac),
    )  # fmt: skip
    first = first_steps(page, panels["counts"], panels["workers"])
    panels |= {
        "workers": _at_work(panels["workers"]), "lengths": _together(panels["lengths"]), "hour": _ended(panels["hour"]),
    }  # fmt: skip
    wrong, late = concerns(panels), UNSEEN * page.celeriac.settings.sweep_interval
    return page.show(
        "overview.html", verdict(panels, wrong, first, late), wrong=by_rule(wrong), soon=soon(panels), first=first,
        span=span, cures=CURES, most_rules=MOST_RULES, most_roles=MOST_ROLES, **panels,
    )  # fmt: skip


def _together(lengths: Content) -> Content:
    return lengths if lengths.stopped else Content(insights.together(list(lengths.value.values())))


def _at_work(workers: Content) -> Content:
    """Return how many workers report, how many of them back off, their slots; and how many fell silent."""
    if workers.stopped:
        return workers
    up = [row for row in workers.value if words.standing(row) == "active"]
    return Content(
        {
            "up": len(up),
            "backing_off": sum(bool(row["resources"].get("is_backing_off")) for row in up),
            "slots": sum(row["concurrency"] for row in up),
            "gone": sum(words.standing(row) == "gone" for row in workers.value),
        }
    )


def _ended(hour: Content) -> Content:
    """Sum all roles' ended tasks, within the counted hour."""
    if hour.stopped:
        return hour
    steps = [step for of_role in hour.value.values() for step in of_role]
    return Content({"completed": sum(step.completed for step in steps), "failed": sum(step.failed for step in steps)})


def roles(page: Page, role: str | None = None) -> Content:
    """Return each role, or one, with its depth, and its capacity if that was read in time; the worst first."""
    panels = page.at_once(
        depths=partial(page.panel, insights.depth, role, cap=words.CAP),
        capacity=partial(page.panel, insights.capacity, role, most=COUNTED, figures=True),
        hours=partial(page.panel, insights.last_hour),
        paces=partial(page.panel, pace, role),
        burning=partial(page.panel, burning, role),
    )
    depths, capacity, hours = panels["depths"], by_role(panels["capacity"]), panels["hours"].value or {}
    for needed in (depths, panels["paces"]):
        if needed.stopped:
            return needed
    paces, usual = panels["paces"].value, page.celeriac.settings.alert_wait
    burns = {one.role: one for one in panels["burning"].value or ()}
    rows = [
        _role(d, capacity.get(d.role), hours.get(d.role), paces.get(d.role, Pace()), usual, burns.get(d.role))
        for d in depths.value
    ]
    return Content(sorted(rows, key=lambda row: WORST_FIRST.index(row["health"])))


def by_role(rows: Content) -> dict[str, Any]:
    return {row["role"]: row for row in rows.value or ()}


def _role(
    depth: insights.RoleDepth, capacity: Any, hour: Any, pace: Pace, usual: float, burns: Burning | None
) -> dict[str, Any]:
    """Return a role's row. `hour`: how many tasks ended in each minute; None if none did."""
    is_so = health(depth, capacity, pace, usual, burns=burns is not None)
    return {"depth": depth, "capacity": capacity, "hour": hour, "health": is_so, "burns": burns}


@router.get("/go")
def go(page: Viewer) -> Response:
    """Jump to the only hit: a task, a role, a worker, a schedule, a lock key held or waited for, a known account."""
    name = page.ask("q").get("q", "").strip().lstrip("#")
    if not name:
        raise Elsewhere(page.to("tasks"))
    hits = [(kind, page.to(*to)) for kind, to in _hits(page, name)]
    if len(hits) == 1:
        raise Elsewhere(hits[0][1])
    return page.show("go.html", f"Go to {name:.100}", name=name, hits=hits)


def _hits(page: Page, name: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield everything of this name, with its address."""
    ways = (f"id={name}", f"task_id={name}") if is_an_id(name) else (name,)
    for number in {task["id"] for way in ways if (task := page.read(insights.find, way))}:
        yield "task", ("tasks", number)
    if any(depth.role == name for depth in page.read(insights.depth, cap=words.CAP)):
        yield "role", ("roles", name)
    if any(worker["worker_id"] == name for worker in page.read(insights.workers)):
        yield "worker", ("workers", name)
    if any(schedule["name"] == name for schedule in page.read(insights.schedules)):
        yield "schedule", ("schedules", name)
    lock = page.read(insights.lock, name)
    if lock.task is not None or lock.waiting.n:
        yield "lock", ("locks", name)
    if page.read(is_known, name):
        yield "account", ("accounts", name)
