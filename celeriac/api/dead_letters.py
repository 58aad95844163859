"""`/api/dead-letters`: messages of plain Celery apps that became no task."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Changed, Reason, change
from celeriac.api.fields import IdInPath, Name
from celeriac.api.paging import IdQuery, Paged
from celeriac.operate import dead_letters
from celeriac.seam.dead_letters import replay

router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"])


class DeadLetter(BaseModel):
    id: int
    at: datetime = Field(description="when it was taken from Redis")
    name: str | None = Field(description="the name of its task", examples=["shop.tasks.charge"])
    task_id: str | None
    sender: str | None = Field(examples=["gen31@web-1"])
    args: Any = Field(description="or the sender's description of them, as a text")
    kwargs: Any
    reason: str = Field(examples=["no role 'shop.tasks.charge': start a worker of the code that declares it"])
    size: int = Field(description="bytes")


class WholeDeadLetter(DeadLetter):
    message: str = Field(description="as it came, up to its first 64 kB")


class DeadLetters(Paged):
    dead_letters: list[DeadLetter]


class LetterQuery(IdQuery):
    name: Name | None = Field(default=None, description="of the messages for this task")


@router.get("")
def list_dead_letters(query: Annotated[LetterQuery, Query()], app: App, _: Reader) -> DeadLetters:
    """List dead letters, newest first: those for one task or all."""
    asked: dict[str, Any] = {"name": query.name, "before": query.after_id}
    with app.database.reading() as connection:
        letters, more = query.read(lambda n: insights.dead_letters(connection, limit=n, **asked), itemgetter("id"))
    return DeadLetters.model_validate({"dead_letters": letters, "next": more})


@router.get("/{letter}")
def get_dead_letter(letter: IdInPath, app: App, _: Reader) -> WholeDeadLetter:
    """Return one dead letter, with the message itself."""
    with app.database.reading() as connection:
        return WholeDeadLetter.model_validate(insights.dead_letter(connection, letter))


@router.post("/{letter}/replay")
def replay_dead_letter(letter: IdInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Enqueue its task. 422 with the reason if it still fits no role; then the letter stays."""
    done = change(app, partial(replay, app, letter=letter, by=caller.name, why=body.why))
    app.kick([done.after["role"]] if done.after else [])
    return done


@router.post("/{letter}/discard")
def discard_dead_letter(letter: IdInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Delete a dead letter; the audit trail keeps its name, sender and reason."""
    return change(app, partial(dead_letters.discard, letter=letter, by=caller.name, why=body.why))
