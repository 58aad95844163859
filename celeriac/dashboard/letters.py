"""Dead letters: messages of plain Celery apps that could not become tasks. Replay or discard one."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import Id, Sent, number
from celeriac.dashboard.guard import Canceller, Retrier, Viewer
from celeriac.operate import dead_letters
from celeriac.seam.dead_letters import replay as replayed

router = APIRouter()


ROWS = 50


@router.get("/dead-letters")
def listed(page: Viewer) -> Response:
    asked = page.ask("name", "before")
    letters = page.panel(insights.dead_letters, name=asked.get("name"), limit=ROWS, before=number(asked, "before"))
    kept = page.celeriac.settings.dead_letter_days * 86_400
    return page.show("dead-letters.html", "Dead letters", letters=letters, rows=ROWS, kept=kept)


@router.get("/dead-letters/{letter}")
def shown(letter: Id, page: Viewer) -> Response:
    page.ask()
    content = page.read(insights.dead_letter, letter)
    return page.show("dead-letter.html", f"Dead letter {letter}", letter=content)


@router.post("/dead-letters/{letter}/replay")
def replay(letter: Id, page: Retrier, form: Sent) -> Response:
    def act() -> str:
        done = page.write(partial(replayed, page.celeriac, letter=letter, by=page.bearer.name, why=form["why"]))
        if not done.after:
            return "A message of this id became a task before: the letter is gone."
        page.celeriac.kick([done.after["role"]])
        return f"It is the task {done.after['task_id']} of {done.after['role']} now."

    return acts.done(page, page.to("dead-letters"), act)


@router.post("/dead-letters/{letter}/discard")
def discard(letter: Id, page: Canceller, form: Sent) -> Response:
    verb = partial(dead_letters.discard, letter=letter, by=page.bearer.name, why=form["why"])
    return acts.change(page, page.to("dead-letters"), verb, "It is discarded; the audit trail keeps what it was.")
