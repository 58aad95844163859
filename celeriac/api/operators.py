"""What operators ask first: which failures there are, who gets less than a fair share, which locks are held."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Reader
from celeriac.api.fields import Limit, Name, Text
from celeriac.api.system import Count, Shown

router = APIRouter(prefix="/api", tags=["system"])

Since = Annotated[float, Query(ge=0, le=1e9, description="only those of the last so many seconds")]
LockKey = Annotated[Text, Query(description="only this one, with its queue")]


class FailureGroup(Shown):
    """Failures that are the same: of one role, one exception, one message but for numbers and what is quoted."""

    fingerprint: str = Field(examples=["3f0c1b7a9e42"])
    role: str = Field(examples=["product_resync"])
    type: str | None = Field(examples=["HTTPStatusError"])
    message: str = Field(description="the newest one's first line")
    pattern: str = Field(description="what all of them say", examples=["HTTPStatusError: # of ''"])
    frame: str | None = Field(description="the innermost frame of their own code", examples=["stores.py:resync"])
    count: int = Field(examples=[412])
    last_hour: int
    first_seen: datetime = Field(description="of those looked at")
    last_seen: datetime
    tasks: list[int] = Field(description="the newest few")
    accounts: list[str] = Field(description="those hit most")
    accounts_in_all: int


class Failures(Shown):
    groups: list[FailureGroup] = Field(description="the most frequent first")
    groups_in_all: int
    looked_at: int = Field(description="failures that were read, the newest by id", examples=[5000])
    reached_end: bool = Field(description="false: there are older ones, which were not looked at")


class AccountShare(Shown):
    role: str | None = Field(description="null: of all roles together")
    account: str = Field(examples=["7"])
    waiting: Count = Field(description="ready to start")
    parked: Count = Field(description="it is paused, or may have nothing")
    oldest_due: datetime | None
    claimed: int
    running: int
    held: int = Field(description="claimed and running")
    weight: float
    cap: int | None
    paused: bool
    fair: float = Field(description="slots it would hold if all were shared out anew", examples=[12.5])
    lacks: float = Field(description="slots it has less than that")
    fair_share: float = Field(description="0 to 1, of what all would hold")
    held_share: float = Field(description="0 to 1, of what all hold")


class Shares(Shown):
    accounts: list[AccountShare] = Field(description="who lacks most first")
    is_all: bool = Field(description="false: there are more accounts than were looked at or are told")


class Lock(Shown):
    lock_key: str = Field(examples=["dispensary:17"])
    task: int | None = Field(description="who has it; null: nobody, and a worker's next look gives it away")
    task_id: str | None
    role: str | None
    account: str | None
    status: Literal["pending", "claimed", "running"] | None = Field(description="of that task")
    worker_id: str | None
    held_seconds: float | None
    heartbeat_age: float | None
    is_stale: bool = Field(description="its worker fell silent for longer than its role allows")
    waiting: Count = Field(description="behind it")
    oldest_wait_seconds: float | None


class Waiting(Shown):
    place: int = Field(description="1 is next", examples=[1])
    id: int
    task_id: str
    role: str
    account: str
    priority: int
    due_at: datetime
    waits_seconds: float


class Locks(BaseModel):
    locks: list[Lock] = Field(description="those with most behind them first, then those held longest")
    is_all: bool = Field(description="false: there are more")
    queue: list[Waiting] | None = Field(description="who waits behind the key that was asked for, in order")


@router.get("/failures")
def failures(app: App, _: Reader, role: Name | None = None, since: Since | None = None, limit: Limit = 100) -> Failures:
    """The newest 5,000 failures in groups of the same: how often, since when, whom they hit."""
    with app.database.reading() as connection:
        found = insights.failures(connection, role=role, since=since, limit=limit)
    return Failures.model_validate(found)


@router.get("/shares")
def shares(app: App, _: Reader, role: Name | None = None, limit: Limit = 200) -> Shares:
    """What each account has waiting and holds, beside what would be fair; of one role, or of all together."""
    with app.database.reading() as connection:
        return Shares.model_validate(insights.shares(connection, role, limit=limit))


@router.get("/locks")
def locks(app: App, _: Reader, lock_key: LockKey | None = None, limit: Limit = 100) -> Locks:
    """Which lock keys are held or waited for, by whom and since when; of one key, its queue as well."""
    with app.database.reading() as connection:
        if lock_key is None:
            found = insights.locks(connection, limit=limit)
            return Locks.model_validate(
                {"locks": found.locks, "is_all": found.is_all, "queue": None}, from_attributes=True
            )
        one, queue = insights.lock(connection, lock_key), insights.queue_of(connection, lock_key, limit=limit)
    return Locks.model_validate({"locks": [one], "is_all": True, "queue": queue}, from_attributes=True)
