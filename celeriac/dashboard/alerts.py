"""Alerts: list firing, pending and silenced ones, and all rules; silence one."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.alerts.review import rules_there_are
from celeriac.alerts.rules import Rule
from celeriac.dashboard import acts, words
from celeriac.dashboard.forms import Sent
from celeriac.dashboard.guard import RoleSteerer, Viewer
from celeriac.errors import BadValue
from celeriac.operate import silences
from celeriac.settings import Settings

if TYPE_CHECKING:
    from celeriac.app import Celeriac

#: By setting, or by a number that is a rule's threshold itself (it has none): the environment's variable.
_VARIABLES: dict[object, str | None] = {field.name: field.metadata.get("variable") for field in fields(Settings)}

router = APIRouter()


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
         "lasts": r.lasts, "severity": r.severity, "variable": _VARIABLES.get(r.threshold)}
        for r in rules
    ]  # fmt: skip


def _limit(rule: Rule, limit: float) -> str:
    """Format a rule's limit in its unit."""
    if "{threshold:.1%}" in rule.says:
        return words.rate(limit)
    is_time = "{threshold:g} s" in rule.says or (_VARIABLES.get(rule.threshold) or "").endswith("_MS")
    return words.took(limit) if is_time else words.figure(limit)


@router.post("/alerts/silence")
def silence(page: RoleSteerer, form: Sent) -> Response:
    """Send nobody an alert for some time; its page still shows it."""

    def act() -> str:
        seconds = words.seconds(form["span"])
        if seconds is None:
            raise BadValue(f"span={form['span']!r:.50}: give a time like 15m, 1h or 2d")
        name, subject, by, why = form.name("name"), form.name("subject"), page.bearer.name, form["why"]
        page.write(lambda c: silences.silence(c, name, subject, seconds=seconds, by=by, why=why))
        return f"Nobody is told of {name} {subject} for {words.took(seconds)}."

    return acts.done(page, page.to("alerts"), act)


@router.post("/alerts/unsilence")
def end_silence(page: RoleSteerer, form: Sent) -> Response:
    name, subject = form.name("name"), form.name("subject")
    verb = partial(silences.end_silence, name=name, subject=subject, by=page.bearer.name)
    said = f"{name} {subject} is told of again."
    return acts.change(page, page.to("alerts"), verb, said)
