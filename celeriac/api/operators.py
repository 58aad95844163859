"""What operators ask first: which failures there are, who gets less than a fair share, which locks are held."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Operator, Reader
from celeriac.api.fields import Name, Text
from celeriac.api.paging import AFTER, NUMBER, TEXT, IdQuery, Paged, PageQuery, Place, ranks
from celeriac.api.system import Count, Shown
from celeriac.api.tasks import Tasks
from celeriac.insights.checks import Reason
from celeriac.insights.failures import MOST as MOST_GROUPS
from celeriac.operate import PATIENCE
from celeriac.operate.failures import State, mark

router = APIRouter(prefix="/api", tags=["system"])

#: Keys that are looked at for those with most behind them: of those that are held, and of those waited for.
KEYS = 500


class RoleQuery(PageQuery):
    role: Name | None = None


class FailureQuery(RoleQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, NUMBER, TEXT)] | None, AFTER] = None
    since: Annotated[float, Field(ge=0, le=1e9, description="only those of the last so many seconds")] | None = None
    state: State | None = None


class FailedQuery(IdQuery):
    role: Name | None = None


class ShareQuery(RoleQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, TEXT)] | None, AFTER] = None


class LockQuery(PageQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, TEXT)] | None, AFTER] = None


class UniqueQuery(RoleQuery):
    after: Annotated[Annotated[Place, ranks(TEXT, TEXT)] | None, AFTER] = None


class QueueQuery(PageQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, NUMBER, NUMBER)] | None, AFTER] = None
    lock_key: Text = Field(examples=["dispensary:17"])


class Mark(Shown):
    """What somebody said of them; open where nobody did."""

    state: State = Field(description="one that was resolved opens by itself when it fails again")
    note: str | None = Field(examples=["the store's API is down until Monday"])
    by: str | None
    at: datetime | None
    reopened: bool = Field(description="it was resolved, and failed again since")


class ToMark(BaseModel):
    state: State = Field(examples=["known"])
    note: Text = ""


class Marked(Shown):
    fingerprint: str = Field(examples=["3f0c1b7a9e42"])
    before: Mapping[str, Any] | None = Field(examples=[{"state": "open", "note": None}])
    after: Mapping[str, Any] | None = Field(examples=[{"state": "known", "note": "until Monday"}])


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
    trend: list[int] = Field(description="how many in each of 24 equal parts of the time from `begin` to now")
    retrying: int = Field(description="tasks that failed so and are tried again; those of `count` were given up")
    mark: Mark


class Failures(Paged):
    groups: list[FailureGroup] = Field(description="the most frequent first")
    groups_in_all: int
    looked_at: int = Field(description="failures that were read, the newest by id", examples=[5000])
    reached_end: bool = Field(description="false: there are older ones, which were not looked at")
    begin: datetime | None = Field(
        description="when the trends begin: `since` ago, or with the oldest; null: no failure"
    )


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
    rounds_waited: int | None = Field(
        default=None, description="of one role: rounds it waits already while it holds nothing; 1 is the bound"
    )


class Shares(Paged):
    accounts: list[AccountShare] = Field(description="who lacks most first")
    is_all: bool = Field(description="false: there are more accounts than were looked at")
    cursor: str | None = Field(
        default=None, description="of one role: the account after which its next pass begins", examples=["acme"]
    )


class AccountRole(Shown):
    role: str = Field(examples=["product_resync"])
    ready: Count = Field(description="could start")
    later: Count = Field(description="waits for its time")
    parked: Count = Field(description="the account is paused, or may have nothing")
    oldest_due: datetime | None
    claimed: int
    running: int
    completed: int = Field(description="within an hour, of the role's newest 1,000")
    failed: int = Field(description="within an hour, of the role's newest 1,000")


class Holding(Shown):
    id: int = Field(examples=[7])
    role: str = Field(examples=["product_resync"])
    worker_id: str | None = Field(description="null: it is claimed, and none has started it")
    claimed_at: datetime
    started_at: datetime | None
    heartbeat_age: float | None


class OldestTask(Shown):
    id: int = Field(examples=[7])
    role: str = Field(examples=["product_resync"])
    due_at: datetime
    parked: bool


class AccountAtWork(Shown):
    roles: list[AccountRole] = Field(description="those of which it has anything; what waits for locks is not counted")
    held: list[Holding] = Field(description="claimed or running, the first 50 by when they were claimed")
    oldest: list[OldestTask] = Field(description="10 that are due, of the first 500 of each role")


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


class Waits(Shown):
    reason: Reason = Field(description="as `why` says it of one task", examples=["not_its_turn"])
    room: str = Field(
        description="`waits_for` of the tasks it is said of, nothing: they are ready", examples=["nothing"]
    )
    says: str = Field(examples=["not their turn: with the next pass their account has its fair share, or its cap"])
    n: Count
    until: datetime | None = Field(description="when it may be over; null: nobody knows")


class WaitsOfRole(Shown):
    role: str
    waits: list[Waits] = Field(description="those that are ready first; what nothing waits for is left out")


class Locks(Paged):
    locks: list[Lock] = Field(description="those with most behind them first")
    is_all: bool = Field(description="false: there are more keys than were looked at")


class UniqueKey(Shown):
    role: str = Field(examples=["product_resync"])
    unique_key: str = Field(examples=["dispensary:17"])
    task: int = Field(description="the unfinished task that has it; who asks for another gets this one")
    task_id: str
    account: str
    status: Literal["pending", "claimed", "running"]
    created_at: datetime
    due_at: datetime


class UniqueKeys(Paged):
    unique_keys: list[UniqueKey] = Field(description="by role and key")


class LockQueue(Paged):
    lock: Lock
    queue: list[Waiting] = Field(description="the first 1,000 that wait behind it, in order")


@router.get("/failures")
def list_failures(query: Annotated[FailureQuery, Query()], app: App, _: Reader) -> Failures:
    """The newest 5,000 failures in groups of the same: how often, since when, whom they hit."""
    with app.database.reading() as connection:
        found = insights.failures(connection, role=query.role, since=query.since, limit=MOST_GROUPS, state=query.state)
    groups, more = query.of(found.groups, lambda one: (-one.count, -one.last_seen.timestamp(), one.fingerprint))
    return Failures.model_validate({
        "groups": groups, "next": more, "groups_in_all": found.groups_in_all, "looked_at": found.looked_at,
        "reached_end": found.reached_end, "begin": found.begin,
    }, from_attributes=True)  # fmt: skip


@router.get("/failures/{fingerprint}/tasks")
def list_failed_tasks(
    fingerprint: Annotated[Name, Path()], query: Annotated[FailedQuery, Query()], app: App, _: Reader
) -> Tasks:
    """All tasks of a group of failures, newest first. A page looks at 20,000 failures at most, and may be short."""
    with app.database.reading() as connection:
        found = insights.failed_tasks(connection, fingerprint, role=query.role, limit=query.limit, after=query.after_id)
    return Tasks.model_validate({"tasks": found.items, "next": found.next})


@router.put("/failures/{fingerprint}")
def set_failure_state(fingerprint: Annotated[Name, Path()], body: ToMark, app: App, caller: Operator) -> Marked:
    """Says of failures that are the same that they are known, resolved, or open again. 404 where none has failed so."""
    with app.database.reading() as connection:
        insights.failing(connection, fingerprint, most=1)
    with app.database.transaction(patience=PATIENCE) as connection:
        done = mark(connection, fingerprint, body.state, by=caller.name, note=body.note)
    return Marked(fingerprint=fingerprint, before=done.before, after=done.after)


@router.get("/shares")
def list_shares(query: Annotated[ShareQuery, Query()], app: App, _: Reader) -> Shares:
    """What each account has waiting and holds, beside what would be fair; of one role, or of all together."""
    with app.database.reading() as connection:
        found = insights.shares(connection, query.role, limit=insights.MOST_ROWS)
        turns = None if query.role is None else insights.turns(connection, query.role)
    accounts, more = query.of(found.accounts, lambda one: (-one.lacks, one.account))
    told = Shares.model_validate({"accounts": accounts, "is_all": found.is_all, "next": more}, from_attributes=True)
    if turns is not None:
        told.cursor = turns.cursor
        for one in told.accounts:
            one.rounds_waited = turns.rounds.get(one.account, 0)
    return told


@router.get("/roles/{role}/waits")
def get_waits(role: Annotated[Name, Path()], app: App, _: Reader) -> WaitsOfRole:
    """Why the role's tasks wait, reason by reason: how many, and when the next pass takes some."""
    with app.database.reading() as connection:
        found = insights.waits_of(connection, role, app.probe)
    return WaitsOfRole.model_validate({"role": role, "waits": found}, from_attributes=True)


@router.get("/shares/account")
def get_account_at_work(
    app: App, _: Reader, account: Annotated[Text, Query(examples=["acme"], description="empty: of no account")]
) -> AccountAtWork:
    """One account: what it has of each role, what it holds, and its oldest tasks that are due."""
    with app.database.reading() as connection:
        return AccountAtWork.model_validate({
            "roles": insights.account_roles(connection, account),
            "held": insights.account_holdings(connection, account),
            "oldest": insights.account_oldest(connection, account),
        }, from_attributes=True)  # fmt: skip


@router.get("/locks")
def list_locks(query: Annotated[LockQuery, Query()], app: App, _: Reader) -> Locks:
    """Which lock keys are held or waited for, by whom and since when."""
    with app.database.reading() as connection:
        found = insights.locks(connection, limit=KEYS)
    locks, more = query.of(found.locks, lambda one: (-one.waiting.n, one.lock_key))
    return Locks.model_validate({"locks": locks, "is_all": found.is_all, "next": more}, from_attributes=True)


@router.get("/locks/queue")
def get_lock(query: Annotated[QueueQuery, Query()], app: App, _: Reader) -> LockQueue:
    """One lock key: who has it, and who waits behind it, in order."""
    with app.database.reading() as connection:
        lock = insights.lock(connection, query.lock_key)
        waiting = insights.queue_of(connection, query.lock_key, limit=insights.MOST_ROWS)
    queue, more = query.of(waiting, lambda one: (-one.priority, one.due_at.timestamp(), one.id))
    return LockQueue.model_validate({"lock": lock, "queue": queue, "next": more}, from_attributes=True)


@router.get("/unique-keys")
def list_unique_keys(query: Annotated[UniqueQuery, Query()], app: App, _: Reader) -> UniqueKeys:
    """Which unique keys are taken, by which unfinished task; of one role, or of all."""
    after = None if query.after is None else tuple(json.loads(query.after))
    with app.database.reading() as connection:
        found, more = query.read(
            lambda n: insights.unique_keys(connection, query.role, limit=n, after=after),
            lambda one: json.dumps((one.role, one.unique_key), ensure_ascii=False),
        )
    return UniqueKeys.model_validate({"unique_keys": found, "next": more}, from_attributes=True)
