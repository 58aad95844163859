"""Alerts: those that fire, that may soon, that are silenced, and all rules."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.alerts.review import rules_there_are
from celeriac.alerts.rules import Rule
from celeriac.dashboard import acts, words
from celeriac.dashboard.forms import Sent
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page
from celeriac.errors import BadValue
from celeriac.operate import silences
from celeriac.settings import Settings

if TYPE_CHECKING:
    from celeriac.app import Celeriac

_VARIABLES = {field.name: field.metadata.get("variable") for field in fields(Settings)}

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]
Steerer = Annotated[Page, Depends(May("roles"))]


@router.get("/alerts")
def listed(page: Viewer) -> Response:
    page.ask()
    return page.show(
        "alerts.html", "Alerts", alerts=page.panel(insights.firing), pending=page.panel(insights.pending_alerts),
        silences=page.panel(insights.silences), rules=_rules(page.celeriac),
    )  # fmt: skip


def _rules(app: Celeriac) -> list[dict[str, Any]]:
    """Return the rules, with their present limits."""
    rules = [rule for some in rules_there_are(app).values() for rule in some]
    return [
        {"name": r.name, "of": r.of, "limit": r.limit(app.settings), "shown": _limit(r, r.limit(app.settings)),
         "lasts": r.lasts, "severity": r.severity,
         "variable": _VARIABLES.get(r.threshold) if isinstance(r.threshold, str) else None}
        for r in rules
    ]  # fmt: skip


def _limit(rule: Rule, limit: float) -> str:
    """Format a rule's limit in its unit."""
    if "{threshold:.1%}" in rule.says:
        return words.rate(limit)
    variable = _VARIABLES.get(rule.threshold) if isinstance(rule.threshold, str) else None
    is_time = "{threshold:g} s" in rule.says or (variable or "").endswith("_MS")
    return words.took(limit) if is_time else words.figure(limit)


@router.post("/alerts/silence")
def silence(page: Steerer, form: Sent) -> Response:
    """Silence an alert for so long; it is still shown."""

    def act() -> str:
        seconds = words.seconds(form["span"])
        if seconds is None:
            raise BadValue(f"span={form['span']!r:.50}: give a time like 15m, 1h or 2d")
        name, subject, by, why = form.name("name"), form.name("subject"), page.bearer.name, form["why"]
        page.write(lambda c: silences.silence(c, name, subject, seconds=seconds, by=by, why=why))
        return f"Nobody is told of {name} {subject} for {words.took(seconds)}."

    return acts.done(page, page.to("alerts"), act)


@router.post("/alerts/unsilence")
def end_silence(page: Steerer, form: Sent) -> Response:
    name, subject = form.name("name"), form.name("subject")
    verb = partial(silences.end_silence, name=name, subject=subject, by=page.bearer.name)
    said = f"{name} {subject} is told of again."
    return acts.change(page, page.to("alerts"), verb, said)
