"""Lock keys held or waited for, and unique keys that are taken."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Reader
from celeriac.api.fields import Text
from celeriac.api.paging import AFTER, NUMBER, TEXT, Paged, PageQuery, Place, RoleQuery, ranks
from celeriac.api.system import AnswerModel, BoundedCount

router = APIRouter(prefix="/api", tags=["system"])

#: Maximum number of held keys, and of keys with waiting tasks, read to find those with most waiting tasks.
KEYS = 500


class LockQuery(PageQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, TEXT)] | None, AFTER] = None


class UniqueQuery(RoleQuery):
    after: Annotated[Annotated[Place, ranks(TEXT, TEXT)] | None, AFTER] = None


class QueueQuery(PageQuery):
    after: Annotated[Annotated[Place, ranks(NUMBER, NUMBER, NUMBER)] | None, AFTER] = None
    lock_key: Text = Field(examples=["dispensary:17"])


class Lock(AnswerModel):
    lock_key: str = Field(examples=["dispensary:17"])
    task: int | None = Field(description="who has it; null: nobody, and a worker's next check gives it away")
    task_id: str | None
    role: str | None
    account: str | None
    status: Literal["pending", "claimed", "running"] | None = Field(description="of that task")
    worker_id: str | None
    held_seconds: float | None
    heartbeat_age: float | None
    is_stale: bool = Field(description="its worker fell silent for longer than its role allows")
    waiting: BoundedCount = Field(description="behind it")
    oldest_wait_seconds: float | None


class WaitingTask(AnswerModel):
    place: int = Field(description="1 is next", examples=[1])
    id: int
    task_id: str
    role: str
    account: str
    priority: int
    due_at: datetime
    waits_seconds: float


class Locks(Paged):
    locks: list[Lock] = Field(description="those with most waiting tasks first")
    is_all: bool = Field(description="false: there are more keys than were read")


class UniqueKey(AnswerModel):
    role: str = Field(examples=["product_resync"])
    unique_key: str = Field(examples=["dispensary:17"])
    task: int = Field(description="the unfinished task that has it; an enqueue with this key gets this task")
    task_id: str
    account: str
    status: Literal["pending", "claimed", "running"]
    created_at: datetime
    due_at: datetime


class UniqueKeys(Paged):
    unique_keys: list[UniqueKey] = Field(description="by role and key")


class LockQueue(Paged):
    lock: Lock
    queue: list[WaitingTask] = Field(description="the first 1,000 that wait behind it, in order")


@router.get("/locks")
def list_locks(query: Annotated[LockQuery, Query()], app: App, _: Reader) -> Locks:
    """List lock keys that are held or waited for, by whom and since when."""
    with app.database.reading() as connection:
        keys = insights.locks(connection, limit=KEYS)
    locks, more = query.of(keys.locks, lambda one: (-one.waiting.n, one.lock_key))
    return Locks.model_validate({"locks": locks, "is_all": keys.is_all, "next": more}, from_attributes=True)


@router.get("/locks/queue")
def get_lock(query: Annotated[QueueQuery, Query()], app: App, _: Reader) -> LockQueue:
    """Return one lock key: who has it, and who waits for it, in order."""
    with app.database.reading() as connection:
        lock = insights.lock(connection, query.lock_key)
        waiting = insights.queue_of(connection, query.lock_key, limit=insights.MOST_ROWS)
    queue, more = query.of(waiting, lambda one: (-one.priority, one.due_at.timestamp(), one.id))
    return LockQueue.model_validate({"lock": lock, "queue": queue, "next": more}, from_attributes=True)


@router.get("/unique-keys")
def list_unique_keys(query: Annotated[UniqueQuery, Query()], app: App, _: Reader) -> UniqueKeys:
    """List the unique keys that are taken, of one role or of all, each with the unfinished task that has it."""
    after = None if query.after is None else tuple(json.loads(query.after))
    with app.database.reading() as connection:
        keys, more = query.read(
            lambda n: insights.unique_keys(connection, query.role, limit=n, after=after),
            lambda one: json.dumps((one.role, one.unique_key), ensure_ascii=False),
        )
    return UniqueKeys.model_validate({"unique_keys": keys, "next": more}, from_attributes=True)
