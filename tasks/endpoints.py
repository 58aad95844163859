"""The stores' own endpoints: generating tasks, migrating from the systems before, asking for one store."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from celeriac import insights
from celeriac.api.app import App
from celeriac.api.callers import Admin, AnyEnqueuer, Reader
from celeriac.api.enqueue import WAS_THERE, Accepted
from celeriac.api.fields import AS_TEXT, Flag, IdInPath, Name, Whole
from celeriac.api.problems import invalid, not_found
from celeriac.api.tasks import WholeTask
from celeriac.operate import audit
from celeriac.operate.audit import Change
from tasks import crawl_jobs, legacy, stores, triggers
from tasks.platforms import PLATFORMS

generating = APIRouter(prefix="/api/tasks/generate", tags=["stores"])
migrating = APIRouter(prefix="/api/tasks/migration", tags=["migration"])
of_a_store = APIRouter(prefix="/api/tasks/store", tags=["stores"])

State = Annotated[Name, Field(examples=["AZ"])]

#: Batches a day: one every quarter of an hour.
MOST_BATCHES = 96


class Resyncs(BaseModel):
    batches_per_day: Annotated[int, Whole(1, MOST_BATCHES)] = stores.BATCHES
    date: Annotated[
        Annotated[datetime.date, AS_TEXT] | None,
        Field(description="UTC; today's if left out", examples=["2025-01-10"]),
    ] = None


class Created(BaseModel):
    created: int = Field(examples=[14])


class Discovery(BaseModel):
    platform: Name = Field(default="dutchie", examples=["dutchie"], json_schema_extra={"enum": [*sorted(PLATFORMS)]})
    state_code: State | None = None


class Trial(BaseModel):
    dry_run: Flag = Field(
        default=False, description="say what it would do, and leave everything as it is", examples=[True]
    )


#: A body that may be left out.
MaybeTrial = Annotated[Trial, Body(default_factory=Trial)]


class OfState(Trial):
    state_code: State | None = None


class Told(BaseModel):
    """What was done, or would be."""

    told: dict[str, Any] = Field(examples=[{"dry_run": True, "disabled": 2, "schedules": ["resync", "discovery"]}])


class ActiveTask(BaseModel):
    store: int
    active: bool
    task: WholeTask | None = Field(description="the one that is claimed or running")


@generating.post("/resync", status_code=201)
def generate_resync(app: App, caller: AnyEnqueuer, body: Annotated[Resyncs, Body(default_factory=Resyncs)]) -> Created:
    """A resync for each store, staggered over the day in batches. Repeated, it creates only what is missing."""

    def generate(session: Session) -> dict[str, Any]:
        return {"created": stores.generate_resync_tasks(session, body.batches_per_day, body.date)}

    return Created.model_validate(_audited(app, "generate", "resync", caller.name, generate))


@generating.post("/discovery", status_code=201, responses=WAS_THERE)
def generate_discovery(
    app: App, caller: AnyEnqueuer, response: Response, body: Annotated[Discovery, Body(default_factory=Discovery)]
) -> Accepted:
    """Finds a platform's stores, of one state or all. One that waits or runs already is found instead."""
    if body.platform not in PLATFORMS:
        raise invalid("platform", f"give one of {', '.join(sorted(PLATFORMS))}")

    def enqueue(session: Session) -> dict[str, Any]:
        task = stores.store_discovery.using(session=session).delay(body.platform, body.state_code or "")
        return {"id": task.row_id, "task_id": task.id, "is_new": task.is_new}

    return _accepted(app, response, _audited(app, "generate", "discovery", caller.name, enqueue))


@migrating.get("/status")
def get_migration_status(app: App, _: Reader) -> Told:
    """The systems before beside the new one."""
    with Session(app.database.engine) as session:
        return Told(told=legacy.status(session))


@migrating.post("/disable-old-schedules")
def disable_old_schedules(app: App, caller: Admin, body: MaybeTrial) -> Told:
    """No old schedule starts anything any more."""
    return _migrate(app, "disable-old-schedules", caller.name, legacy.disable_old_schedules, body)


@migrating.post("/cancel-pending-crawl-jobs")
def cancel_pending_crawl_jobs(app: App, caller: Admin, body: MaybeTrial) -> Told:
    """What waits in the old queue is not crawled any more."""
    return _migrate(app, "cancel-pending-crawl-jobs", caller.name, legacy.cancel_pending_crawl_jobs, body)


@migrating.post("/create-resync-tasks")
def create_resync_tasks(app: App, caller: Admin, body: Annotated[OfState, Body(default_factory=OfState)]) -> Told:
    """A resync, due now, for every store (of a state)."""
    return _migrate(app, "create-resync-tasks", caller.name, legacy.create_resync_tasks, body)


@migrating.post("/full-migrate")
def migrate_fully(app: App, caller: Admin, body: MaybeTrial) -> Told:
    """All of it, all or none."""
    return _migrate(app, "full-migrate", caller.name, legacy.full_migrate, body)


@of_a_store.get("/{store}/active")
def get_active_task_of_store(store: IdInPath, app: App, _: Reader) -> ActiveTask:
    """Whether a task of the store is claimed or running."""
    with app.database.statement() as connection:
        found = stores.active_task(connection, store)
    task = WholeTask.model_validate(found) if found else None
    return ActiveTask(store=store, active=task is not None, task=task)


@of_a_store.post("/{store}/run-now", status_code=201, responses=WAS_THERE)
def run_store_now(store: IdInPath, app: App, caller: AnyEnqueuer, response: Response) -> Accepted:
    """The store's resync, ahead of others; one that waits or runs already is found instead, and goes ahead."""
    try:
        task = stores.run_now(store)
    except LookupError as error:
        raise not_found(f"store {store}") from error
    done = {"id": task.row_id, "task_id": task.id, "is_new": task.is_new}
    with app.database.transaction() as connection:
        audit.write(connection, "run-now", "store", [Change(str(store), None, done)], by=caller.name)
    return _accepted(app, response, done)


def _accepted(app: App, response: Response, done: dict[str, Any]) -> Accepted:
    """201 for a new task, 200 for one that was there, which may wait for its store's lock."""
    response.status_code = 201 if done["is_new"] else 200
    with app.database.statement() as connection:
        row = insights.find(connection, done["id"])
    return Accepted.model_validate(done | {"waits_for": row and row["waits_for"]})


def _migrate(app: App, step: str, by: str, act: Callable[..., dict[str, Any]], body: Trial) -> Told:
    return Told(told=_audited(app, "migrate", step, by, lambda session: act(session, **body.model_dump())))


def _audited(app: App, action: str, target: str, by: str, act: Callable[[Session], dict[str, Any]]) -> dict[str, Any]:
    """Does it and says so in one transaction; a dry run changed nothing, so there is nothing to say."""
    with Session(app.database.engine) as session, session.begin():
        done = act(session)
        if not done.get("dry_run"):
            audit.write(session.connection(), action, "stores", [Change(target, None, done)], by=by)
    return done


#: For `Celeriac(routers=…)`.
routers = (generating, migrating, of_a_store, crawl_jobs.router, triggers.router)
