"""Failures: how many different problems are there?"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.dashboard import acts, words
from celeriac.dashboard.forms import Sent
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.dashboard.records import number
from celeriac.errors import BadValue, Unknown
from celeriac.operate import failures

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]

#: The span that the page shows by default.
USUAL = "1d"

#: Spans for which the minutes have the number of ended tasks.
SPANS = {"1h": "1h", "1d": "24h", "7d": "7d"}

#: Tasks on a page.
ROWS = 50


@router.get("/failures")
def listed(page: Viewer) -> Response:
    asked = page.ask("role", "since", "state")
    failures = page.panel(insights.failures, role=asked.get("role"), since=_since(asked), state=asked.get("state"))
    since = asked.get("since", USUAL)
    return page.show("failures.html", "Failures", failures=failures, since=since, ended=_ended(page, since))


def _ended(page: Page, since: str) -> Content:
    """Return how many tasks ended in this time, and until when they are counted; nothing if no minutes have it."""
    span = SPANS.get(since)
    flow = Content() if span is None else page.panel(insights.flow, span, page.asked.get("role"))
    if flow.value is None or flow.value.is_cut:
        return Content()
    return Content({"n": sum(step.completed + step.failed for step in flow.value.steps), "until": flow.value.until})


@router.get("/failures/{fingerprint}")
def shown(fingerprint: str, page: Viewer) -> Response:
    """Show one kind of failure, among the newest failures."""
    asked = page.ask("since")
    failures = page.panel(insights.failures, since=_since(asked), limit=1_000)
    group = None
    if not failures.stopped:
        group = next((one for one in failures.value.groups if one.fingerprint == fingerprint), None)
        if group is None:
            raise Unknown(f"there are no failures {fingerprint!r} among the newest")
    tasks = Content([page.read(insights.find, task) for task in group.tasks] if group else [])
    tasks = Content([task for task in tasks.value if task is not None])
    return page.show(
        "failure.html", f"Failure {fingerprint}", failure=failures if failures.stopped else Content(group), tasks=tasks
    )


@router.get("/failures/{fingerprint}/tasks")
def tasks(fingerprint: str, page: Viewer) -> Response:
    """Show all tasks of one kind of failure, as far back as they are kept."""
    asked = page.ask("role", "before")
    failed = page.panel(
        insights.failed_tasks, fingerprint, role=asked.get("role"), limit=ROWS, after=number(asked, "before")
    )
    return page.show("failed.html", f"Tasks of failure {fingerprint}", failed=failed, fingerprint=fingerprint)


@router.post("/failures/{fingerprint}/mark")
def mark(fingerprint: str, page: Annotated[Page, Depends(May("retry"))], form: Sent) -> Response:
    state, verb = form["state"], failures.mark
    act = partial(verb, fingerprint=fingerprint, state=state, by=page.bearer.name, note=form["note"])
    return acts.change(page, page.to("failures", fingerprint), act, f"It is marked as {state}.")


def _since(asked: dict[str, str]) -> float | None:
    """Return `since` in seconds. Raises BadValue."""
    since = asked.get("since", USUAL)
    if since == "ever":
        return None
    seconds = words.seconds(since)
    if seconds is None:
        raise BadValue(f"since={since!r:.50}: give a time like 30s, 15m, 1h or 2d, or ever")
    return seconds
