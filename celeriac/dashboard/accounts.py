"""Accounts: is this customer treated fairly, is it flooding the system? Set weight and cap; pause and resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard import acts
from celeriac.dashboard.forms import Form, Sent
from celeriac.dashboard.guard import AccountSteerer, Viewer
from celeriac.dashboard.reading import Content
from celeriac.errors import BadValue, Unknown
from celeriac.insights import Filter
from celeriac.insights.fairness.account import HOLDINGS
from celeriac.insights.fairness.shares import policies_of
from celeriac.operate import policies
from celeriac.store.states import UNFINISHED

router = APIRouter()


ROWS = 100

#: Maximum number of accounts whose shares are shown, those that lack most first.
SHARES = 100

#: The policy of an account that has none of its own.
UNSET = {"weight": 1.0, "cap": None, "paused": False}


@router.get("/accounts")
def listed(page: Viewer) -> Response:
    """Show each account's share and policy."""
    asked = page.ask("after")
    panels = page.at_once(
        policies=partial(page.panel, insights.account_policies, limit=ROWS, after=asked.get("after", "")),
        shares=partial(page.panel, insights.shares, limit=SHARES), hours=partial(page.panel, insights.account_hours),
    )  # fmt: skip
    names = _names(panels, only_set="after" in asked)
    rows = _standings(names, panels, page.panel(policies_of, names))
    return page.show("accounts.html", "Accounts", accounts=rows, rows=ROWS, **panels)


@router.get("/accounts/{account:name}")
def shown(account: str, page: Viewer) -> Response:
    page.ask()
    unfinished = Filter(account=account, statuses=list(UNFINISHED))
    panels = page.at_once(
        received=partial(page.panel, insights.received_by, account, figures=True),
        tasks=partial(page.panel, insights.list_tasks, unfinished, limit=20),
        roles=partial(page.panel, insights.account_roles, account), policy=partial(page.panel, _policy, account),
        hours=partial(page.panel, insights.account_hours, account),
        held=partial(page.panel, insights.account_holdings, account),
        oldest=partial(page.panel, insights.account_oldest, account),
        trail=partial(page.panel, insights.audit_trail, kind="account", target=account, limit=10),
    )  # fmt: skip
    return page.show("account.html", f"Account {account or 'none'}", account=account, most=HOLDINGS, **panels)


def _policy(connection: Any, account: str) -> dict[str, Any]:
    """Return the account's policy, or the default; `known`: whether it has a policy or tasks."""
    try:
        return {"known": True} | insights.account_policy(connection, account)
    except Unknown:
        return {"account": account} | UNSET | {"known": policies.is_known(connection, account)}


@router.post("/pause-account/{account:name}")
def pause(account: str, page: AccountSteerer, form: Sent) -> Response:
    verb = partial(policies.pause_account, account=account, create=_create(form), by=page.bearer.name, why=form["why"])
    return acts.change(
        page, page.to("accounts", account), verb, f"{account} is paused: what is claimed already runs on."
    )


@router.post("/resume-account/{account:name}")
def resume(account: str, page: AccountSteerer, form: Sent) -> Response:
    verb = partial(policies.resume_account, account=account, create=False, by=page.bearer.name, why=form["why"])
    return acts.change(page, page.to("accounts", account), verb, f"{account} is resumed.")


@router.post("/set-account/{account:name}")
def change(account: str, page: AccountSteerer, form: Sent) -> Response:
    def act() -> str:
        changes, create = _changes(form), _create(form)
        verb = partial(policies.set_account, account=account, create=create, by=page.bearer.name, why=form["why"])
        page.write(partial(verb, **changes))
        return f"{account}: " + ", ".join(f"{name} {value}" for name, value in changes.items()) + "."

    return acts.done(page, page.to("accounts", account), act)


def _create(form: Form) -> bool:
    """Return whether the form may create the account; without this a misspelt name would pause nobody, unnoticed."""
    return form["create"] == "yes"


def _changes(form: Form) -> Any:
    """Return the form's changes. Raises BadValue."""
    changes: dict[str, Any] = {}
    if form["weight"]:
        try:
            changes["weight"] = float(form["weight"])
        except ValueError:
            raise BadValue(f"weight={form['weight']!r:.50}: give a number") from None
    if form["cap"]:
        changes["cap"] = None if form["cap"] == "none" else form.whole("cap")
    if not changes:
        raise BadValue("weight, cap: give one of them")
    return changes


def _names(panels: Mapping[str, Content], *, only_set: bool) -> list[str]:
    """Return the accounts that lack most, then those with ended tasks, then those with a policy. `only_set`: only the
    last.
    """
    policies = [row["account"] for row in panels["policies"].value or ()]
    if only_set:
        return policies
    shares = panels["shares"].value.accounts if panels["shares"].value else ()
    ended = [one.account for one in panels["hours"].value or ()]
    return list(dict.fromkeys([*(one.account for one in shares), *ended, *policies]))


def _standings(names: Sequence[str], panels: Mapping[str, Content], policies: Content) -> list[dict[str, Any]]:
    """Return a row for each account. None as `share` or `hour`: there is none, or that panel was stopped."""
    shares = {one.account: one for one in panels["shares"].value.accounts} if panels["shares"].value else {}
    hours = {one.account: one for one in panels["hours"].value or ()}
    known: Mapping[str, Any] = policies.value or {}
    return [
        {"account": name, "share": shares.get(name), "hour": hours.get(name), "policy": UNSET | known.get(name, {})}
        for name in names
    ]
