"""The system at a glance: depth, fairness, last review of each role, beats, accounts, the audit trail."""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Reader
from celeriac.api.fields import AccountInPath, Name, RoleInPath, Text
from celeriac.api.paging import IdQuery, Paged, PageOf, PageOfIds, PageOfNames
from celeriac.api.problems import first_of
from celeriac.insights.history.trail import Of, trail

router = APIRouter(prefix="/api", tags=["system"])


class AnswerModel(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class BoundedCount(AnswerModel):
    n: int = Field(examples=[45])
    exact: bool = Field(description="false: more than were counted")


class RoleDepth(AnswerModel):
    role: str = Field(examples=["product_resync"])
    queue: str
    paused: bool
    window: int | None = Field(description="tasks claimed or running at once")
    newcomer_seconds: float | None = Field(
        description="how long a new task waits for the claimed ones if the window is full; null: not measured"
    )
    pending: BoundedCount
    ready: BoundedCount
    later: BoundedCount
    behind: BoundedCount = Field(description="waiting for a lock key")
    parked: BoundedCount = Field(description="of paused accounts")
    members: BoundedCount = Field(description="waiting until the members of a group have finished")
    claimed: int
    running: int
    stale: int = Field(description="running, with a heartbeat older than the role allows")
    oldest_ready_seconds: float | None
    paused_until: datetime | None = Field(description="null: until somebody resumes it")


class Depths(Paged):
    roles: list[RoleDepth]


class PassRecord(AnswerModel):
    """The record of one pass of the batcher: what it saw and decided."""

    id: int
    role: str = Field(examples=["instasite_build"])
    at: datetime
    last_at: datetime
    repeated: int = Field(description="how many passes like it followed")
    by: str
    free: int = Field(description="slots it could give")
    claimants: list[Any] = Field(description="per account: waiting tasks, held tasks, weight and cap")
    given: dict[str, int] = Field(description="slots by account")
    cursor_before: str
    cursor_after: str
    why_nothing: str | None
    took_ms: float


class Passes(Paged):
    passes: list[PassRecord]


class Review(AnswerModel):
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


class Reviews(Paged):
    reviews: list[Review]


class AccountPolicy(AnswerModel):
    account: str = Field(examples=["7"])
    weight: float = Field(examples=[2.0])
    cap: int | None
    paused: bool
    updated_at: datetime


class AccountPolicies(Paged):
    accounts: list[AccountPolicy]


class AuditEntry(AnswerModel):
    id: int
    at: datetime
    by: str = Field(examples=["deploy"])
    action: str = Field(examples=["retry"])
    kind: str = Field(examples=["task"])
    target: str = Field(examples=["7"])
    before: Any
    after: Any
    why: str | None
    via: str | None = Field(description="API, dashboard, command line, SQL, or application", examples=["API"])


class AuditTrail(Paged):
    audit: list[AuditEntry]


class AuditQuery(IdQuery):
    by: Text | None = Field(default=None, examples=["deploy"])
    via: Name | None = Field(default=None, examples=["API"])
    action: Name | None = Field(default=None, examples=["retry"])
    kind: Name | None = Field(default=None, examples=["task"])
    target: Text | None = Field(default=None, examples=["7"])
    newer_than: Annotated[float, Field(ge=0, le=1e9, description="seconds")] | None = None


class BeatRecord(AnswerModel):
    beat_id: str = Field(examples=["beat@node-7:3"])
    hostname: str = Field(examples=["node-7"])
    pid: int = Field(examples=[3])
    started_at: datetime
    last_tick_at: datetime
    late_by: float = Field(description="seconds, of its last tick", examples=[0.02])


class Beats(Paged):
    beats: list[BeatRecord]


@router.get("/roles")
def list_roles(query: PageOfNames, app: App, _: Reader) -> Depths:
    """List the waiting and running tasks of each role, and how long the oldest waits; by name."""
    with app.database.reading() as connection:
        depths, more = query.of(insights.depth(connection), lambda one: (one.role,))
    return Depths.model_validate({"roles": depths, "next": more}, from_attributes=True)


@router.get("/roles/{role}")
def get_role(role: RoleInPath, app: App, _: Reader) -> RoleDepth:
    """Return the waiting and running tasks of one role, and how long the oldest waits."""
    with app.database.reading() as connection:
        depths = insights.depth(connection, role)
    return RoleDepth.model_validate(first_of(depths, f"role {role!r}"))


@router.get("/roles/{role}/passes")
def list_passes(role: RoleInPath, query: PageOfIds, app: App, _: Reader) -> Passes:
    """List a role's passes, newest first: what each account had waiting, and what it got."""
    before = query.after_id
    with app.database.reading() as connection:
        passes, more = query.read(lambda n: insights.passes(connection, role, limit=n, before=before), itemgetter("id"))
    return Passes.model_validate({"passes": passes, "next": more})


@router.get("/beats")
def list_beats(query: PageOfNames, app: App, _: Reader) -> Beats:
    """List beats that tick or did lately, by name; all of them serve the same schedules."""
    with app.database.reading() as connection:
        beats, more = query.of(insights.beats(connection), lambda one: (one["beat_id"],))
    return Beats.model_validate({"beats": beats, "next": more})


@router.get("/reviews")
def list_reviews(query: PageOf, app: App, _: Reader) -> Reviews:
    """List the Queue Master's State Documents: the state of each role's queue at its last review, by role."""
    after = query.after or ""
    with app.database.reading() as connection:
        reviews, more = query.read(lambda n: insights.reviews(connection, limit=n, after=after), itemgetter("role"))
    return Reviews.model_validate({"reviews": reviews, "next": more})


@router.get("/reviews/{role}")
def get_review(role: RoleInPath, app: App, _: Reader) -> Review:
    """Return a role's last review. 404 before its first."""
    with app.database.reading() as connection:
        reviews = insights.reviews(connection, role)
    return Review.model_validate(first_of(reviews, f"review of the role {role!r}"))


@router.get("/accounts")
def list_accounts(query: PageOf, app: App, _: Reader) -> AccountPolicies:
    """List accounts with a weight, a cap or a pause of their own, by name."""
    after = query.after or ""
    with app.database.reading() as connection:
        policies, more = query.read(
            lambda n: insights.account_policies(connection, limit=n, after=after), itemgetter("account")
        )
    return AccountPolicies.model_validate({"accounts": policies, "next": more})


@router.get("/accounts/{account:name}")
def get_account(account: AccountInPath, app: App, _: Reader) -> AccountPolicy:
    """Return one account's weight, cap and pause. 404 if nobody set any."""
    with app.database.reading() as connection:
        return AccountPolicy.model_validate(insights.account_policy(connection, account))


@router.get("/audit")
def list_audit_trail(query: Annotated[AuditQuery, Query()], app: App, _: Reader) -> AuditTrail:
    """List the audit trail, newest first: who changed what. With a filter a page reads 10,000 entries at most, and may
    be short.
    """
    wanted = Of(query.by, query.action, query.kind, query.target, query.via, query.newer_than)
    with app.database.reading() as connection:
        page = trail(connection, wanted, limit=query.limit, after=query.after)
    return AuditTrail.model_validate({"audit": page.items, "next": page.next})
