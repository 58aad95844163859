"""Workflows: list those under way; show one's progress and shape, and what holds it up; cancel it as a whole."""

from __future__ import annotations

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import Sent
from celeriac.dashboard.graph import graph
from celeriac.dashboard.guard import Canceller, Viewer
from celeriac.dashboard.page import Elsewhere
from celeriac.insights.tasks.workflows import COUNTED
from celeriac.operate import PATIENCE, workflows

router = APIRouter()


ROWS = 50


@router.get("/workflows")
def search(page: Viewer) -> Response:
    """List running workflows. `of`: go to a workflow, by its own id or that of any of its parts."""
    asked = page.ask("of", "after")
    if of := asked.get("of"):
        raise Elsewhere(page.to("workflows", page.read(insights.workflow_of, of)))
    workflows = page.panel(insights.workflows_under_way, limit=ROWS + 1, after=asked.get("after"))
    return page.show("workflows.html", "Workflows", workflows=workflows, rows=ROWS, counted=COUNTED)


@router.get("/workflows/{workflow:name}")
def shown(workflow: str, page: Viewer) -> Response:
    asked = page.ask("state", "role", "barrier", "before")
    parts = page.panel(
        insights.workflow_tasks, workflow, statuses=asked.get("state", "").split(), role=asked.get("role"),
        barrier=asked.get("barrier"), limit=ROWS, after=asked.get("before"),
    )  # fmt: skip
    whole = page.panel(insights.workflow, workflow)
    drawn = None if whole.stopped or page.wants_json else graph(whole.value.nodes, whole.value.edges)
    return page.show("workflow.html", f"Workflow {workflow}", whole=whole, parts=parts, label=workflow, drawn=drawn)


@router.post("/cancel-workflow/{workflow:name}")
def cancel(workflow: str, page: Canceller, form: Sent) -> Response:
    """Cancel all unfinished parts; no further part begins."""

    def act() -> str:
        label = page.read(insights.workflow_of, workflow)
        some = workflows.cancel(page.celeriac.database, label, by=page.bearer.name, why=form["why"], patience=PATIENCE)
        return acts.each(some, "cancelled")

    return acts.done(page, page.to("workflows", workflow), act)
