"""Accounts and their fair shares, and why a role's tasks wait."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Reader
from celeriac.api.fields import RoleInPath, Text
from celeriac.api.paging import AFTER, NUMBER, TEXT, Paged, Place, RoleQuery, ranks
from celeriac.api.system import AnswerModel, BoundedCount
from celeriac.insights.why.checks import Reason

router = APIRouter(prefix="/api", tags=["system"])


class ShareQuery(RoleQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, TEXT)] | None, AFTER] = None


class AccountShare(AnswerModel):
    role: str | None = Field(description="null: all roles together")
    account: str = Field(examples=["7"])
    waiting: BoundedCount = Field(description="ready to start")
    parked: BoundedCount = Field(description="it is paused, or may have nothing")
    oldest_due: datetime | None
    claimed: int
    running: int
    held: int = Field(description="claimed and running")
    weight: float
    cap: int | None
    paused: bool
    fair: float = Field(description="slots it would hold if all were allocated anew", examples=[12.5])
    lacks: float = Field(description="slots it has less than that")
    fair_share: float = Field(description="0 to 1, of the slots that all accounts would hold")
    held_share: float = Field(description="0 to 1, of the slots that all accounts hold")
    rounds_waited: int | None = Field(
        default=None, description="for one role: rounds it has waited while holding nothing; 1 is the bound"
    )


class Shares(Paged):
    accounts: list[AccountShare] = Field(description="those that lack most first")
    is_all: bool = Field(description="false: there are more accounts than were read")
    cursor: str | None = Field(
        default=None, description="for one role: the account after which its next pass begins", examples=["acme"]
    )


class AccountRole(AnswerModel):
    role: str = Field(examples=["product_resync"])
    ready: BoundedCount = Field(description="could start")
    later: BoundedCount = Field(description="waits for its time")
    parked: BoundedCount = Field(description="the account is paused, or may have nothing")
    oldest_due: datetime | None
    claimed: int
    running: int
    completed: int = Field(description="within an hour, of the role's newest 1,000")
    failed: int = Field(description="within an hour, of the role's newest 1,000")


class Holding(AnswerModel):
    id: int = Field(examples=[7])
    role: str = Field(examples=["product_resync"])
    worker_id: str | None = Field(description="null: it is claimed and not started")
    claimed_at: datetime
    started_at: datetime | None
    heartbeat_age: float | None


class OldestTask(AnswerModel):
    id: int = Field(examples=[7])
    role: str = Field(examples=["product_resync"])
    due_at: datetime
    parked: bool


class ReceivedStep(AnswerModel):
    at: datetime = Field(description="when its five minutes begin")
    slots: int = Field(examples=[12])
    fair: float = Field(examples=[12.5])


class Received(AnswerModel):
    slots: int = Field(
        description="slots that passes of all roles gave it; tasks started without a pass are not counted"
    )
    fair: float = Field(
        description="its share, by weight, of the slots that passes gave while it waited", examples=[12.5]
    )
    is_all: bool = Field(description="false: there were more passes within the hour than were read")
    steps: list[ReceivedStep] = Field(description="twelve, the oldest first")


class AccountAtWork(AnswerModel):
    roles: list[AccountRole] = Field(
        description="the roles in which it has tasks; tasks that wait for locks are not counted"
    )
    held: list[Holding] = Field(description="claimed or running, the first 50 by when they were claimed")
    oldest: list[OldestTask] = Field(description="10 that are due, of the first 500 of each role")
    received: Received = Field(description="within the last hour, beside its fair share")


class Waits(AnswerModel):
    reason: Reason = Field(description="as in `why` for one task", examples=["not_its_turn"])
    room: str = Field(description="`waits_for` of these tasks; null: they are ready", examples=["nothing"])
    says: str = Field(examples=["not their turn: with the next pass their account has its fair share, or its cap"])
    n: BoundedCount
    until: datetime | None = Field(description="when it may be over; null: unknown")


class WaitsOfRole(AnswerModel):
    role: str
    waits: list[Waits] = Field(description="reasons of ready tasks first; reasons without tasks are left out")


@router.get("/shares")
def list_shares(query: Annotated[ShareQuery, Query()], app: App, _: Reader) -> Shares:
    """List the tasks each account has waiting and holds, beside its fair share, for one role or all together."""
    with app.database.reading() as connection:
        shares = insights.shares(connection, query.role, limit=insights.MOST_ROWS)
        turns = None if query.role is None else insights.turns(connection, query.role)
    accounts, more = query.of(shares.accounts, lambda one: (-one.lacks, one.account))
    page = Shares.model_validate({"accounts": accounts, "is_all": shares.is_all, "next": more}, from_attributes=True)
    if turns is not None:
        page.cursor = turns.cursor
        for one in page.accounts:
            one.rounds_waited = turns.rounds.get(one.account, 0)
    return page


@router.get("/roles/{role}/waits")
def get_waits(role: RoleInPath, app: App, _: Reader) -> WaitsOfRole:
    """List why the role's tasks wait, reason by reason: how many, and when the next pass takes some."""
    with app.database.reading() as connection:
        waits = insights.waits_of(connection, role, app.probe)
    return WaitsOfRole.model_validate({"role": role, "waits": waits}, from_attributes=True)


@router.get("/shares/account")
def get_account_at_work(
    app: App,
    _: Reader,
    account: Annotated[Text, Query(examples=["acme"], description="empty: tasks without an account")],
) -> AccountAtWork:
    """Return one account: its tasks by role, those it holds, the slots it received in an hour, and its oldest due
    tasks.
    """
    with app.database.reading() as connection:
        return AccountAtWork.model_validate({
            "roles": insights.account_roles(connection, account),
            "held": insights.account_holdings(connection, account),
            "oldest": insights.account_oldest(connection, account),
            "received": insights.received_by(connection, account),
        }, from_attributes=True)  # fmt: skip
