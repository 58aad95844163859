"""Alerts: what fires, what may soon, and silences."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Because, Changed, change
from celeriac.api.fields import Moment, Name, Text
from celeriac.operate import silences
from celeriac.roles.bounds import LONGEST_DELAY, LONGEST_NAME

router = APIRouter(prefix="/api/alerts", tags=["alerts"])

NameInPath = Annotated[Name, Path(description="the rule's")]


class Shown(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Alert(Shown):
    name: str = Field(examples=["queue_depth"])
    subject: str = Field(examples=["product_resync"])
    severity: Literal["page", "warn"] = Field(description="page: somebody has to act now", examples=["warn"])
    says: str = Field(description="it goes on from the subject", examples=["2000 tasks wait, more than 1000"])
    value: float
    threshold: float
    firing_since: datetime
    last_seen_at: datetime
    seen_by: str | None = Field(description="the process that looked last")
    silenced_until: datetime | None


class Pending(Shown):
    name: str = Field(examples=["queue_depth"])
    subject: str = Field(examples=["product_resync"])
    since: datetime


class Alerts(BaseModel):
    alerts: list[Alert]
    pending: list[Pending] = Field(description="above the threshold, but not yet for as long as the rule wants")


class Silence(Shown):
    name: str = Field(examples=["queue_depth"])
    subject: str = Field(description="empty: whatever the subject", examples=["product_resync"])
    until: datetime
    by: str
    why: str | None


class Silences(BaseModel):
    silences: list[Silence]


class Subject(Because):
    subject: Annotated[Text, Field(max_length=LONGEST_NAME)] = Field(
        default="", description="empty: whatever the subject", examples=["product_resync"]
    )


class ToSilence(Subject):
    """Until an instant, or for so many seconds: one of both."""

    until: Moment | None = None
    seconds: Annotated[float, Field(gt=0, le=LONGEST_DELAY)] | None = Field(default=None, examples=[3600])


@router.get("")
def firing(app: App, _: Reader) -> Alerts:
    """What fires, as the last look saw it, and what may soon."""
    with app.database.reading() as connection:
        found = {"alerts": insights.firing(connection), "pending": insights.pending_alerts(connection)}
        return Alerts.model_validate(found)


@router.get("/silences")
def silenced(app: App, _: Reader) -> Silences:
    """Of which alerts nobody is told."""
    with app.database.reading() as connection:
        return Silences.model_validate({"silences": insights.silences(connection)})


@router.post("/{name}/silence")
def silence(name: NameInPath, body: ToSilence, app: App, caller: Operator) -> Changed:
    """Nobody is told of it until then; it is looked at and shown all the same."""
    given: Any = {"until": body.until, "seconds": body.seconds, "why": body.why}
    return change(app, lambda c: silences.silence(c, name, body.subject, by=caller.name, **given))


@router.post("/{name}/unsilence")
def end_silence(name: NameInPath, body: Subject, app: App, caller: Operator) -> Changed:
    """From now on it is told again."""
    return change(app, lambda c: silences.end_silence(c, name, body.subject, by=caller.name, why=body.why))
