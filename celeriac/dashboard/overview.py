"""The overview: is anything wrong, and where? And the box that jumps to a named thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.alerts.judgement import judge
from celeriac.alerts.review import LATE, looks_of
from celeriac.alerts.rules import RULES
from celeriac.dashboard import words
from celeriac.dashboard.first import first_steps
from celeriac.dashboard.forms import is_an_id
from celeriac.dashboard.guard import Viewer
from celeriac.dashboard.health import MEANS, health
from celeriac.dashboard.page import Elsewhere, Page
from celeriac.dashboard.reading import Content
from celeriac.dashboard.verdict import by_rule, concerns, soon, verdict
from celeriac.insights.failures.burning import burning
from celeriac.insights.fleet.one_role import Pace, pace
from celeriac.operate.policies import is_known

router = APIRouter()


WORST_FIRST = tuple(MEANS)

#: The span that the chart shows by default.
USUAL_SPAN = "1h"

#: Maximum number of rules with findings, and of roles, on the first screen. Further findings are folded; further roles
#: are on the page of roles.
MOST_RULES, MOST_ROLES = 3, 6

#: The number to which a role's backlog is counted in each state table, to estimate how long it will take.
COUNTED = 100_000

#: Number of sweep intervals without a check of the alerts after which it is unknown whether anything should alert.
UNSEEN = 2 * LATE

#: By the kind of a rule's subjects: the page on which its alert is cured, and whether each subject has its own.
PLACES = {
    "a role": ("roles", True), "a schedule": ("schedules", True), "an account": ("accounts", True),
    "a lock key": ("locks", True), "a worker": ("workers", False), "plain Celery": ("dead-letters", False),
}  # fmt: skip
CURES = {rule.name: PLACES[rule.of] for rule in RULES if rule.of in PLACES}


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
        "workers": panels["workers"].then(_at_work), "hour": panels["hour"].then(_ended),
        "lengths": panels["lengths"].then(lambda roles: insights.together(list(roles.values()))),
    }  # fmt: skip
    wrong, late = concerns(panels), UNSEEN * page.celeriac.settings.sweep_interval
    return page.show(
        "overview.html", verdict(panels, wrong, first, late), wrong=by_rule(wrong), soon=soon(panels), first=first,
        span=span, cures=CURES, most_rules=MOST_RULES, most_roles=MOST_ROLES, **panels,
    )  # fmt: skip


def _at_work(workers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many workers report, how many of them back off, their slots; and how many fell silent."""
    up = [row for row in workers if words.standing(row) == "active"]
    return {
        "up": len(up),
        "backing_off": sum(bool(row["resources"].get("is_backing_off")) for row in up),
        "slots": sum(row["concurrency"] for row in up),
        "gone": sum(words.standing(row) == "gone" for row in workers),
    }


def _ended(hours: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Sum all roles' ended tasks, within the counted hour."""
    steps = [step for steps_of_role in hours.values() for step in steps_of_role]
    return {"completed": sum(step.completed for step in steps), "failed": sum(step.failed for step in steps)}


def roles(page: Page, role: str | None = None) -> Content:
    """Return all roles, or one, with health, depth, and the capacity if it was read in time; the worst first."""
    panels = page.at_once(
        depths=partial(page.panel, insights.depth, role, cap=words.CAP),
        capacity=partial(page.panel, insights.capacity, role, most=COUNTED, figures=True),
        hours=partial(page.panel, insights.last_hour),
        paces=partial(page.panel, pace, role),
        burning=partial(page.panel, burning, role),
    )
    depths, hours = panels["depths"], panels["hours"].value or {}
    capacity = {row["role"]: row for row in panels["capacity"].value or ()}
    for needed in (depths, panels["paces"]):
        if needed.stopped:
            return needed
    paces, usual = panels["paces"].value, page.celeriac.settings.alert_wait
    burns = {one.role: one for one in panels["burning"].value or ()}
    rows = [
        {
            "depth": d, "capacity": capacity.get(d.role), "hour": hours.get(d.role),
            "health": health(d, capacity.get(d.role), paces.get(d.role, Pace()), usual, burns=d.role in burns),
            "burns": burns.get(d.role),
        }
        for d in depths.value
    ]  # fmt: skip
    return Content(sorted(rows, key=lambda row: WORST_FIRST.index(row["health"])))


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
    """Yield the kind and the address of each thing that has this name."""
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
