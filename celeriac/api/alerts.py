"""Alerts: those that fire, those that may soon, and silences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.changes import Because, Changed, change
from celeriac.api.fields import Moment, Name, Text
from celeriac.api.paging import AFTER, NUMBER, TEXT, Paged, PageQuery, Place, ranks
from celeriac.api.system import AnswerModel
from celeriac.insights.history.alerts import damage
from celeriac.operate import silences
from celeriac.roles.bounds import LONGEST_DELAY

router = APIRouter(prefix="/api/alerts", tags=["alerts"])


NameInPath = Annotated[Name, Path(description="the rule's")]


class Alert(AnswerModel):
    name: str = Field(examples=["queue_depth"])
    subject: str = Field(examples=["product_resync"])
    severity: Literal["page", "warn"] = Field(description="page: somebody has to act now", examples=["warn"])
    says: str = Field(
        description="it continues a sentence that begins with the subject", examples=["2000 tasks wait, more than 1000"]
    )
    value: float
    threshold: float
    firing_since: datetime
    last_seen_at: datetime
    seen_by: str | None = Field(description="the process that checked last")
    silenced_until: datetime | None


class Pending(AnswerModel):
    name: str = Field(examples=["queue_depth"])
    subject: str = Field(examples=["product_resync"])
    since: datetime


class AlertQuery(PageQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, TEXT, TEXT)] | None, AFTER] = None


class FiringQuery(PageQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, NUMBER, TEXT, TEXT)] | None, AFTER] = None


PageOfAlerts = Annotated[AlertQuery, Query()]


class Alerts(Paged):
    alerts: list[Alert]


class AllPending(Paged):
    alerts: list[Pending]


class Silence(AnswerModel):
    name: str = Field(examples=["queue_depth"])
    subject: str = Field(description="empty: whatever the subject", examples=["product_resync"])
    until: datetime
    by: str
    why: str | None


class Silences(Paged):
    silences: list[Silence]


class Subject(Because):
    subject: Text = Field(default="", description="empty: whatever the subject", examples=["product_resync"])


class ToSilence(Subject):
    """A silence, until an instant or for so many seconds: one of both."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [
            {"required": ["until"], "properties": {"until": {"type": "string"}}},
            {"required": ["seconds"], "properties": {"seconds": {"type": "number"}}},
        ]}
    )  # fmt: skip

    until: Moment | None = None
    seconds: Annotated[float, Field(ge=1, le=LONGEST_DELAY)] | None = Field(default=None, examples=[3600])


@router.get("")
def list_alerts(query: Annotated[FiringQuery, Query()], app: App, _: Reader) -> Alerts:
    """List the alerts that fired at the last check, the worst first."""
    with app.database.reading() as connection:
        firing, more = query.of(insights.firing(connection), _worst_first)
    return Alerts.model_validate({"alerts": firing, "next": more})


@router.get("/pending")
def list_pending_alerts(query: PageOfAlerts, app: App, _: Reader) -> AllPending:
    """List alerts that may fire soon: the figure is above its threshold, but not yet for as long as the rule
    requires.
    """
    with app.database.reading() as connection:
        pending, more = query.of(insights.pending_alerts(connection), _since("since"))
    return AllPending.model_validate({"alerts": pending, "next": more})


@router.get("/silences")
def list_silences(query: PageOfAlerts, app: App, _: Reader) -> Silences:
    """List the silenced alerts, the silence that ends first first."""
    with app.database.reading() as connection:
        rows, more = query.of(insights.silences(connection), _since("until"))
    return Silences.model_validate({"silences": rows, "next": more})


@router.post("/{name}/silence")
def silence_alert(name: NameInPath, body: ToSilence, app: App, caller: Operator) -> Changed:
    """Silence an alert until then; it is still checked and shown."""
    terms: Any = {"until": body.until, "seconds": body.seconds, "why": body.why}
    return change(app, lambda c: silences.silence(c, name, body.subject, by=caller.name, **terms))


@router.post("/{name}/unsilence")
def unsilence_alert(name: NameInPath, body: Subject, app: App, caller: Operator) -> Changed:
    """End a silence, so that the alert is sent again."""
    return change(app, lambda c: silences.end_silence(c, name, body.subject, by=caller.name, why=body.why))


def _since(instant: str) -> Callable[[Mapping[str, Any]], tuple[float, str, str]]:
    return lambda alert: (alert[instant].timestamp(), alert["name"], alert["subject"])


def _worst_first(alert: Mapping[str, Any]) -> tuple[int, float, str, str]:
    return (damage(alert["name"], alert["severity"]), *_since("firing_since")(alert))
