"""Roles: is this kind of work healthy, and which accounts get its slots? Pause, resume, set limits."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from celeriac import insights
from celeriac.dashboard import acts, words
from celeriac.dashboard.forms import Form, Sent, seconds
from celeriac.dashboard.guard import RoleSteerer, Viewer
from celeriac.dashboard.overview import USUAL_SPAN
from celeriac.dashboard.overview import roles as roles_of
from celeriac.dashboard.page import Page
from celeriac.dashboard.reading import Content
from celeriac.errors import BadValue, Unknown
from celeriac.insights.fairness.shares import MOST
from celeriac.insights.fleet.one_role import declared, idle, parameters
from celeriac.operate import policies

router = APIRouter()


#: Maximum number of decisions, accounts and operators' changes on a role's page.
DECISIONS, SHARES, CHANGES = 20, 100, 5


@router.get("/roles")
def listed(page: Viewer) -> Response:
    page.ask()
    return page.show("roles.html", "Roles", roles=roles_of(page))


@router.get("/roles/{role:name}")
def shown(role: str, page: Viewer) -> Response:
    span = page.ask("span").get("span", USUAL_SPAN)
    panels = page.at_once(
        role=partial(roles_of, page, role), priorities=partial(page.panel, insights.priorities, role, figures=True),
        passes=partial(page.panel, insights.passes, role, limit=DECISIONS),
        accounts=partial(_accounts, page, role), workers=partial(page.panel, insights.workers),
        waited=partial(page.panel, insights.rounds_waited, role),
        lengths=lambda: page.panel(insights.lengths).then(lambda histograms: histograms.get(role)),
        flow=partial(page.panel, insights.flow, span, role), declared=partial(page.panel, declared, role),
        idle=partial(page.panel, idle, role), retries=partial(page.panel, insights.retries, role),
        parameters=partial(page.panel, parameters, role),
        changes=partial(page.panel, insights.audit_trail, kind="role", target=role, limit=CHANGES),
        turns=partial(page.panel, insights.turns, role),
    )  # fmt: skip
    title, roles, workers = f"Role {role}", panels["role"], panels["workers"]
    if roles.stopped:
        return page.show("role.html", title, role=roles)
    if not roles.value:
        raise Unknown(f"there is no role {role!r}: start a worker of the code that declares it")
    (mine,) = roles.value
    workers = workers.then(lambda rows: [one for one in rows if mine["depth"].queue in one["queues"]])
    shares, waits = panels.pop("accounts")
    shown = panels | {"role": Content(mine), "workers": workers, "shares": shares.then(_first), "waits": waits}
    return page.show("role.html", title, span=span, **shown)


def _accounts(page: Page, role: str) -> tuple[Content, Content]:
    """Return the shares of up to `MOST` accounts, and why tasks wait, computed from these."""
    shares = page.panel(insights.shares, role, limit=MOST)
    return shares, shares if shares.stopped else _waits(page, role, shares.value)


def _first(shares: insights.Shares) -> insights.Shares:
    """Return the shares that the table shows."""
    return insights.Shares(shares.accounts[:SHARES], shares.is_all and len(shares.accounts) <= SHARES)


def _waits(page: Page, role: str, shares: insights.Shares) -> Content:
    """Return why tasks wait; nothing for an unknown role: the page itself reports that."""

    def of(connection: Connection, role: str) -> list[insights.Waits]:
        return insights.waits_of(connection, role, page.celeriac.probe, shares)

    try:
        return page.panel(of, role)
    except Unknown:
        return Content()


@router.post("/pause-role/{role:name}")
def pause(role: str, page: RoleSteerer, form: Sent) -> Response:
    def act() -> str:
        lasts = seconds("for", form["for"])
        page.write(partial(policies.pause_role, role=role, by=page.bearer.name, why=form["why"], seconds=lasts))
        return f"{role} is paused{f' for {words.took(lasts)}' if lasts else ''}: what is claimed already runs on."

    return acts.done(page, page.to("roles", role), act)


@router.post("/resume-role/{role:name}")
def resume(role: str, page: RoleSteerer, form: Sent) -> Response:
    verb = partial(policies.resume_role, role=role, by=page.bearer.name, why=form["why"])
    return acts.change(page, page.to("roles", role), verb, f"{role} is resumed.", kick=[role])


@router.post("/pass-of-role/{role:name}")
def request_pass(role: str, page: RoleSteerer) -> Response:
    def act() -> str:
        declared, _ = page.celeriac.role_declared(role)
        if not declared.prompt:
            raise BadValue(f"{role} is not prompt: its workers run its passes as they poll")
        if not declared.enabled():
            raise BadValue(f"{role} is switched off")
        if not all(page.celeriac.publisher.kick(lane.lane, lane.queue) for lane in declared.lanes):
            raise BadValue("Redis does not answer: a pass is made at the workers' next poll")
        return f"A pass of {role} was asked for."

    return acts.done(page, page.to("roles", role), act)


@router.post("/limits-of-role/{role:name}")
def limits(role: str, page: RoleSteerer, form: Sent) -> Response:
    def act() -> str:
        changes = _limits(form)
        change = page.write(partial(policies.set_limits, role=role, by=page.bearer.name, why=form["why"], **changes))
        page.celeriac.kick([role])
        return f"{policies.limits_in_words(change)}."

    return acts.done(page, page.to("roles", role), act)


@router.post("/reset-limits-of-role/{role:name}")
def reset_limits(role: str, page: RoleSteerer, form: Sent) -> Response:
    verb = partial(policies.reset_limits, role=role, by=page.bearer.name, why=form["why"])
    said = f"The limits of {role} are as declared again."
    return acts.change(page, page.to("roles", role), verb, said, kick=[role])


def _limits(form: Form) -> Any:
    """Return the form's limits: an empty field changes nothing, `none` lifts a limit. Raises BadValue."""
    texts = {name: form[name] for name in ("rate_limit", "timeout", "hard_timeout") if form[name]}
    return {name: None if value == "none" else _number(name, value) for name, value in texts.items()}


def _number(name: str, value: str) -> Any:
    if name == "rate_limit":
        return value
    try:
        return float(value)
    except ValueError:
        raise BadValue(f"{name}={value!r:.50}: give seconds, or none") from None
