"""Policies: pause and resume a role or an account; an account's weight and cap."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import Field

from celeriac.api.app import App
from celeriac.api.callers import Operator
from celeriac.api.changes import Because, Changed, Reason, change
from celeriac.api.fields import AccountInPath, Flag, Number, RoleInPath, Whole
from celeriac.api.problems import Problem
from celeriac.operate import policies
from celeriac.roles.bounds import HEAVIEST, LIGHTEST, LONGEST_DELAY, MOST
from celeriac.roles.rates import WRITTEN

router = APIRouter(prefix="/api", tags=["roles and accounts"])


class ForAccount(Because):
    create: Flag = Field(default=False, description="also for an account that has no policy and had no task lately")


class Policy(ForAccount):
    """Changes to an account; fields not given stay."""

    weight: Annotated[Number, Field(ge=LIGHTEST, le=HEAVIEST)] | None = Field(
        default=None, description="its share; other accounts have 1", examples=[2]
    )
    cap: Annotated[int, Whole(0, MOST)] | None = Field(
        default=None, description="tasks claimed or running at once; null: no cap", examples=[10]
    )
    paused: Flag | None = None

    def changes(self) -> dict[str, Any]:
        """Return the fields to change. Null means "no cap" for `cap`, and "not given" for any other field."""
        sent = {name: getattr(self, name) for name in self.model_fields_set - {"why", "create"}}
        return {name: value for name, value in sent.items() if value is not None or name == "cap"}


#: Ends of paths that take only POST. A PUT there is refused: it would set an account of that name.
_POSTED = ("/pause", "/resume")

#: A body that may be left out.
OfAccount = Annotated[ForAccount, Body(default_factory=ForAccount)]


Seconds = Annotated[Number, Field(gt=0, le=LONGEST_DELAY)]

Rate = Annotated[str, Field(json_schema_extra={"pattern": WRITTEN})]


class ToLimits(Because):
    """A role's limits; fields not given stay, null lifts a limit."""

    rate_limit: Rate | Annotated[Number, Field(ge=0, le=MOST)] | None = Field(
        default=None,
        description='how many tasks begin, over all workers: "10/m", or a number a second',
        examples=["10/m"],
    )
    timeout: Seconds | None = Field(default=None, description="seconds until SoftTimeLimitExceeded", examples=[60])
    hard_timeout: Seconds | None = Field(
        default=None, description="seconds until its process is stopped", examples=[90]
    )

    def changes(self) -> Any:
        return {name: getattr(self, name) for name in self.model_fields_set - {"why"}}


class Pause(Because):
    seconds: Seconds | None = Field(default=None, description="by default until it is resumed", examples=[600])


@router.post("/roles/{role}/pause")
def pause_role(
    role: RoleInPath, app: App, caller: Operator, body: Annotated[Pause, Body(default_factory=Pause)]
) -> Changed:  # fmt: skip
    """Pause a role: none of its tasks is claimed until it is resumed, or the time is over; claimed ones still run."""
    return change(app, lambda c: policies.pause_role(c, role, by=caller.name, why=body.why, seconds=body.seconds))


@router.post("/roles/{role}/resume")
def resume_role(role: RoleInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Resume a role, so that its waiting tasks are claimed again."""
    changed = change(app, lambda c: policies.resume_role(c, role, by=caller.name, why=body.why))
    app.kick([role])
    return changed


@router.put("/roles/{role}/limits")
def set_role_limits(role: RoleInPath, body: ToLimits, app: App, caller: Operator) -> Changed:
    """Set how many of its tasks begin in a time and how long one may run, until they are set or declared again."""
    changed = change(app, lambda c: policies.set_limits(c, role, by=caller.name, why=body.why, **body.changes()))
    app.kick([role])
    return changed


@router.post("/roles/{role}/limits/reset")
def reset_role_limits(role: RoleInPath, app: App, caller: Operator, body: Reason) -> Changed:
    """Restore the limits that the code declares."""
    changed = change(app, lambda c: policies.reset_limits(c, role, by=caller.name, why=body.why))
    app.kick([role])
    return changed


@router.post("/accounts/{account:name}/pause")
def pause_account(account: AccountInPath, app: App, caller: Operator, body: OfAccount) -> Changed:
    """Pause an account: none of its tasks is claimed until it is resumed."""
    return change(app, lambda c: policies.pause_account(c, account, by=caller.name, **body.model_dump()))


@router.post("/accounts/{account:name}/resume")
def resume_account(account: AccountInPath, app: App, caller: Operator, body: OfAccount) -> Changed:
    """Resume an account, so that its tasks are claimed again."""
    return change(app, lambda c: policies.resume_account(c, account, by=caller.name, **body.model_dump()))


@router.put("/accounts/{account:name}")
def set_account(account: AccountInPath, body: Policy, app: App, caller: Operator) -> Changed:
    """Set an account's weight, its cap, whether it is paused. The next pass applies it."""
    if account.endswith(_POSTED):
        raise Problem(405, "pause and resume are requested by POST", headers={"Allow": "POST"})
    policy: dict[str, Any] = {"why": body.why, "create": body.create} | body.changes()
    return change(app, lambda c: policies.set_account(c, account, by=caller.name, **policy))
