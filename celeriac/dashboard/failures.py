"""Failures, grouped by kind: how many different problems are there?"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import TIMES, Sent, number, seconds
from celeriac.dashboard.guard import Retrier, Viewer
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.errors import Unknown
from celeriac.operate import failures

router = APIRouter()


#: The default span.
USUAL = "1d"

#: The spans for which ended tasks are counted, with their names in `insights.flow`.
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
    """Return how many tasks ended in this span, and until when they are counted; nothing if they are not counted."""
    span = SPANS.get(since)
    flow = Content() if span is None else page.panel(insights.flow, span, page.asked.get("role"))
    if flow.value is None or flow.value.is_cut:
        return Content()
    return Content({"n": sum(step.completed + step.failed for step in flow.value.steps), "until": flow.value.until})


@router.get("/failures/{fingerprint}")
def shown(fingerprint: str, page: Viewer) -> Response:
    """Show a kind of failure, as found among the newest failures."""
    asked = page.ask("since")
    failures = page.panel(insights.failures, since=_since(asked), limit=1_000)
    group = None
    if not failures.stopped:
        group = next((one for one in failures.value.groups if one.fingerprint == fingerprint), None)
        if group is None:
            raise Unknown(f"there are no failures {fingerprint!r} among the newest")
    tasks = [page.read(insights.find, task) for task in group.tasks] if group else []
    return page.show(
        "failure.html", f"Failure {fingerprint}", failure=failures.then(lambda _: group),
        tasks=Content([task for task in tasks if task is not None]),
    )  # fmt: skip


@router.get("/failures/{fingerprint}/tasks")
def tasks(fingerprint: str, page: Viewer) -> Response:
    """List all kept tasks with this kind of failure."""
    asked = page.ask("role", "before")
    failed = page.panel(
        insights.failed_tasks, fingerprint, role=asked.get("role"), limit=ROWS, after=number(asked, "before")
    )
    return page.show("failed.html", f"Tasks of failure {fingerprint}", failed=failed, fingerprint=fingerprint)


@router.post("/failures/{fingerprint}/mark")
def mark(fingerprint: str, page: Retrier, form: Sent) -> Response:
    state, note = form["state"], form["note"]
    verb = partial(failures.mark, fingerprint=fingerprint, state=state, by=page.bearer.name, note=note)
    return acts.change(page, page.to("failures", fingerprint), verb, f"It is marked as {state}.")


def _since(asked: dict[str, str]) -> float | None:
    """Return `since` in seconds. Raises BadValue."""
    since = asked.get("since", USUAL)
    return None if since == "ever" else seconds("since", since, f"{TIMES}, or ever")
