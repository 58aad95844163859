"""The system at a glance: depth, fairness and last review of each role, accounts' policies, the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Reader
from celeriac.api.fields import Id, Limit, Name, Text
from celeriac.api.problems import not_found

router = APIRouter(prefix="/api", tags=["system"])

Before = Annotated[Id, Query(description="the id of the last one seen: what follows is older")]


class Shown(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Count(Shown):
    n: int = Field(examples=[45])
    exact: bool = Field(description="false: more than were counted")


class RoleDepth(Shown):
    role: str = Field(examples=["product_resync"])
    queue: str
    paused: bool
    window: int | None = Field(description="tasks claimed or running at once")
    pending: Count
    ready: Count
    later: Count
    behind: Count = Field(description="waiting for a lock key")
    parked: Count = Field(description="of paused accounts")
    members: Count = Field(description="waiting until the members of a group have finished")
    claimed: int
    running: int
    stale: int = Field(description="running, with a heartbeat older than the role allows")
    oldest_ready_seconds: float | None


class Depths(BaseModel):
    roles: list[RoleDepth]


class Pass(Shown):
    """What one pass of the batcher saw and decided."""

    id: int
    role: str = Field(examples=["instasite_build"])
    at: datetime
    last_at: datetime
    repeated: int = Field(description="how many like it followed")
    by: str
    free: int = Field(description="slots there were to give")
    claimants: list[Any] = Field(description="per account: what waited, what it held, its weight and cap")
    given: dict[str, int] = Field(description="slots by account")
    cursor_before: str
    cursor_after: str
    why_nothing: str | None
    took_ms: float


class Passes(BaseModel):
    passes: list[Pass]


class Review(Shown):
    """The state of a role's queue, as the last review left it."""

    role: str = Field(examples=["instasite_build"])
    state: str = Field(examples=["reviewed"])
    reviewed_at: datetime
    reviewed_by: str
    found: dict[str, int] = Field(
        description="what it found `active`, `ready` and `due` (counted up to 1,000), and what it `rescued`, `removed` "
        "and `promoted`",
        examples=[{"active": 3, "ready": 12, "due": 0, "rescued": 1, "removed": 0, "promoted": 4}],
    )


class Reviews(BaseModel):
    reviews: list[Review]


class AccountPolicy(Shown):
    account: str = Field(examples=["7"])
    weight: float = Field(examples=[2.0])
    cap: int | None
    paused: bool
    updated_at: datetime


class AccountPolicies(BaseModel):
    accounts: list[AccountPolicy]


class AuditEntry(Shown):
    id: int
    at: datetime
    by: str = Field(examples=["deploy"])
    action: str = Field(examples=["retry"])
    kind: str = Field(examples=["task"])
    target: str = Field(examples=["7"])
    before: Any
    after: Any
    why: str | None


class AuditTrail(BaseModel):
    audit: list[AuditEntry]


@router.get("/roles")
def depth(app: App, _: Reader) -> Depths:
    """What waits and runs of each role, and since when."""
    with app.database.reading() as connection:
        return Depths.model_validate({"roles": insights.depth(connection)}, from_attributes=True)


@router.get("/roles/{role}")
def depth_of_role(role: Annotated[Name, Path()], app: App, _: Reader) -> RoleDepth:
    """What waits and runs of one role, and since when."""
    with app.database.reading() as connection:
        found = insights.depth(connection, role)
    if not found:
        raise not_found(f"role {role!r}")
    return RoleDepth.model_validate(found[0])


@router.get("/roles/{role}/passes")
def passes(
    role: Annotated[Name, Path()], app: App, _: Reader, limit: Limit = 100, before: Before | None = None
) -> Passes:
    """Fairness, pass by pass: who had how much waiting and got how much, newest first."""
    with app.database.reading() as connection:
        return Passes.model_validate({"passes": insights.passes(connection, role, limit=limit, before=before)})


@router.get("/reviews")
def reviews(app: App, _: Reader) -> Reviews:
    """The Queue Master's State Documents: what the last review left of each role's queue."""
    with app.database.reading() as connection:
        return Reviews.model_validate({"reviews": insights.reviews(connection)})


@router.get("/reviews/{role}")
def review_of_role(role: Annotated[Name, Path()], app: App, _: Reader) -> Review:
    """The one of this role. 404 before its first review."""
    with app.database.reading() as connection:
        found = insights.reviews(connection, role)
    if not found:
        raise not_found(f"review of the role {role!r}")
    return Review.model_validate(found[0])


@router.get("/accounts")
def account_policies(app: App, _: Reader, limit: Limit = 100, after: Text = "") -> AccountPolicies:
    """Accounts with a weight, a cap or a pause of their own, by name; `after` is the last one seen."""
    with app.database.reading() as connection:
        found = insights.account_policies(connection, limit=limit, after=after)
    return AccountPolicies.model_validate({"accounts": found})


@router.get("/accounts/{account:path}")
def account_policy(account: Annotated[Text, Path(min_length=1)], app: App, _: Reader) -> AccountPolicy:
    """One account's weight, cap and pause. 404 where nobody set any."""
    with app.database.reading() as connection:
        return AccountPolicy.model_validate(insights.account_policy(connection, account))


@router.get("/audit")
def audit_trail(
    app: App, _: Reader, kind: Name | None = None, target: Text | None = None, limit: Limit = 100,
    before: Before | None = None,
) -> AuditTrail:  # fmt: skip
    """Who changed what, newest first; of one target (its kind given as well) or of all."""
    with app.database.reading() as connection:
        found = insights.audit_trail(connection, kind=kind, target=target, limit=limit, before=before)
    return AuditTrail.model_validate({"audit": found})
