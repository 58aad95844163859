"""A deleted task's page: the rule by which it was deleted, and what is left of it."""

from __future__ import annotations

from fastapi import Response

from celeriac.dashboard import words
from celeriac.dashboard.page import Page
from celeriac.errors import Unknown
from celeriac.insights.tasks.tasks import Gone, gone


def show(page: Page, task: str) -> Response:
    """Show its events, as long as they are kept. Raises Unknown if nothing is left."""
    kept = page.celeriac.settings.event_days * 86_400
    pruned = page.read(gone, int(task), otherwise=kept) if is_an_id(task) else None
    if pruned is None:
        raise Unknown(
            f"there is no task {task:.50}: none had this id, or it was pruned as its role's `keep` says;"
            f" what happened to tasks is kept {words.took(kept)}"
        )
    why = f"{rule(pruned, kept)} Its history is kept {words.took(kept)}."
    return page.show(
        "gone.html",
        f"Task {task}",
        status=404,
        number=task,
        why=why,
        still=True,
        role=pruned.role,
        events=pruned.events,
    )


def is_an_id(task: str) -> bool:
    return task.isascii() and task.isdigit() and len(task) < len(str(2**63)) and str(int(task)) == task


def rule(task: Gone, kept: float) -> str:
    """Return the rule in a sentence. `kept`: for how many seconds a role that keeps no successes keeps failures."""
    match task.keep:
        case "forever":
            return f"Tasks of {task.role} are kept for ever: it was deleted by hand."
        case None:
            return f"Completed tasks of {task.role} are not kept, others {words.took(kept)}."
        case 0:
            return f"Finished tasks of {task.role} are not kept."
    return f"Finished tasks of {task.role} are kept {words.took(task.keep)}."
