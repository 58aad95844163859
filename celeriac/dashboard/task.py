"""A task: its row, its history, why it waits, and the actions that its state allows; also if it was deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from celeriac import insights
from celeriac.dashboard import acts, reading, words
from celeriac.dashboard.forms import Id, Sent, as_object, is_an_id
from celeriac.dashboard.guard import Canceller, Definer, Prioritiser, Retrier, Viewer
from celeriac.dashboard.page import Elsewhere, Page
from celeriac.dashboard.reading import Content
from celeriac.errors import Unknown
from celeriac.insights.tasks import attempts
from celeriac.insights.tasks.attempts import path
from celeriac.insights.tasks.tasks import Gone, events, gone, log_of
from celeriac.operate import steer
from celeriac.store.states import FAILED, FINISHED, MOVES, RUNNING, WAITS_FOR_TIME

router = APIRouter()


@router.get("/tasks/{task}")
@router.get("/tasks/{task:name}")
def shown(task: str, page: Viewer) -> Response:
    """Show a task by its id, as in the dashboard's own addresses, or by its task_id."""
    page.ask()
    row = page.read(insights.find, int(task) if is_an_id(task) else task)
    if row is None:
        return _gone(page, task)
    if str(row["id"]) != task:
        raise Elsewhere(page.to("tasks", row["id"]))

    def explained(connection: Connection, number: int) -> insights.Why:
        return insights.why(connection, number, page.celeriac.probe, within=reading.TIMEOUT)

    why = Content() if row["status"] in FINISHED else page.panel(explained, row["id"])
    happened = page.panel(events, row["id"])
    moves = sorted(move for move, statuses in MOVES.items() if row["status"] in statuses)
    moves = [move for move in moves if move != "hasten" or row["waits_for"] == WAITS_FOR_TIME]
    return page.show(
        "task.html", f"Task {task}", task=row, events=happened, why=why, lede=lede(row, why.value), moves=moves,
        attempts=attempts.attempts(happened.value or []), children=page.panel(attempts.children, row["id"]),
        plan=_plan(page, row), most_children=attempts.MOST_CHILDREN, at=page.base_url,
        log=page.panel(log_of, row["id"]) if page.may("view_args") else Content(),
        traceback=_traceback(page, row), runs=page.panel(attempts.runs, row["role"]),
        path=path(row, happened.value or []),
    )  # fmt: skip


def _gone(page: Page, task: str) -> Response:
    """Show why a deleted task was deleted, and its events as long as they are kept. Raises Unknown if none is left."""
    kept = page.celeriac.settings.event_days * 86_400
    pruned = page.read(gone, int(task), otherwise=kept) if is_an_id(task) else None
    if pruned is None:
        raise Unknown(
            f"there is no task {task:.50}: none had this id, or it was pruned as its role's `keep` says;"
            f" what happened to tasks is kept {words.took(kept)}"
        )
    why = f"{_rule(pruned, kept)} Its history is kept {words.took(kept)}."
    role, events = pruned.role, pruned.events
    return page.show(
        "gone.html", f"Task {task}", status=404, number=task, why=why, still=True, role=role, events=events
    )


def _rule(task: Gone, kept: float) -> str:
    """Explain in a sentence why it was deleted. `kept`: seconds for which a role without successes keeps failures."""
    match task.keep:
        case "forever":
            return f"Tasks of {task.role} are kept for ever: it was deleted by hand."
        case None:
            return f"Completed tasks of {task.role} are not kept, others {words.took(kept)}."
        case 0:
            return f"Finished tasks of {task.role} are not kept."
    return f"Finished tasks of {task.role} are kept {words.took(task.keep)}."


def _plan(page: Page, task: Mapping[str, Any]) -> str | None:
    """Return what would follow a failure; None for a finished task, or if its role cannot be read."""
    delays = Content() if task["status"] in FINISHED else page.panel(attempts.delays, task["role"])
    return None if delays.value is None else attempts.after_a_failure(task, *delays.value)


def _traceback(page: Page, task: Mapping[str, Any]) -> Content:
    """Return the traceback; it may contain arguments, so only for who may see these."""
    if task["status"] != FAILED or not page.may("view_args"):
        return Content()
    return page.panel(attempts.traceback, task["id"])


def lede(task: Mapping[str, Any], why: insights.Why | None) -> str:
    """Describe the task's state in a sentence."""
    match task["status"]:
        case "completed":
            return f"Completed on {task['worker_id'] or 'no worker'}."
        case "failed":
            return f"Failed: {words.first_line(task['error_message']) or 'no error was told'}."
        case "cancelled":
            return f"Cancelled: {words.first_line(task['error_message']) or 'no reason was given'}."
    if why is None:
        return "Why it has not ended is not known just now."
    asked = " It was told to stop." if task["cancel_requested_at"] else ""
    return f"{words.sentence(why.headline)}{asked}"


@router.post("/tasks/{task}/retry")
def retry(task: Id, page: Retrier, form: Sent) -> Response:
    """Retry it from the beginning, or let it go on from where it stopped."""
    goes_on = bool(form["goes_on"])
    said = "It will go on from where it stopped." if goes_on else "It will run again."
    return _one(page, task, partial(steer.retry, by=page.bearer.name, why=form["why"], goes_on=goes_on), said)


@router.post("/tasks/{task}/cancel")
def cancel(task: Id, page: Canceller, form: Sent) -> Response:
    verb = partial(steer.cancel, by=page.bearer.name, why=form["why"])

    def act() -> str:
        change = page.write(lambda c: verb(c, [task]).one())
        return "It was told to stop." if (change.after or {}).get("status") == RUNNING else "It is cancelled."

    return acts.done(page, page.to("tasks", task), act)


@router.post("/tasks/{task}/priority")
def priority(task: Id, page: Prioritiser, form: Sent) -> Response:
    def act() -> str:
        verb = partial(steer.set_priority, priority=form.whole("priority"), by=page.bearer.name, why=form["why"])
        change = page.write(lambda c: verb(c, [task]).one())
        return f"Its priority is {(change.after or {})['priority']}, it was {(change.before or {})['priority']}."

    return acts.done(page, page.to("tasks", task), act)


@router.post("/tasks/{task}/boost")
def boost(task: Id, page: Prioritiser) -> Response:
    """Raise its priority by 20, to 100 at most."""
    verb = partial(steer.boost, boost=20, by=page.bearer.name)
    return _one(page, task, verb, "It was moved up.")


@router.post("/tasks/{task}/arguments")
def arguments(task: Id, page: Definer, form: Sent) -> Response:
    """Replace some arguments of a waiting task."""

    def act() -> str:
        change = page.celeriac.edit(task, as_object(form["arguments"]), by=page.bearer.name, why=form["why"])
        names = (change.after or {})["arguments"]
        return f"It is called with another {', '.join(names)}." if names else "It has just these arguments."

    return acts.done(page, page.to("tasks", task), act)


@router.post("/tasks/{task}/now")
def run_now(task: Id, page: Prioritiser) -> Response:
    def act() -> str:
        row = page.read(insights.get, task)
        page.write(lambda c: steer.hasten(c, [task], by=page.bearer.name).one())
        page.celeriac.kick([row["role"]])
        return "It is due now."

    return acts.done(page, page.to("tasks", task), act)


def _one(page: Page, task: int, verb: Callable[..., steer.Steered], said: str) -> Response:
    return acts.change(page, page.to("tasks", task), lambda c: verb(c, [task]).one(), said)
