"""From the systems before to tasks: what the old ones still do, and how they are stopped and replaced.

Each function works in the caller's transaction, does not do again what is done, and says what it did; with `dry_run`
it says the same and leaves everything as it was.

    full_migrate
    ├── disable_old_schedules
    ├── cancel_pending_crawl_jobs
    ├── a resync for every store, staggered over the day
    └── a store_discovery for each platform, an analytics_refresh

SyncOrchestrator and HydrationWorker have no queue or schedule here to stop: see `PROCESSES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from celeriac import insights
from models import Dispensary, DispensaryCrawlJob, JobRunLog, JobSchedule
from models.stores import TAKES_PART
from tasks.platforms import PLATFORMS
from tasks.stores import PER_STORE, analytics_refresh, generate_resync_tasks, product_resync, store_discovery

Told = dict[str, Any]


#: What took the old crawls' raw payloads apart, and why nothing takes its place: whoever deployed it stops it.
PROCESSES = {
    "SyncOrchestrator": "stop its processes: each task asks its platform and stores the answer, in one transaction",
    "HydrationWorker": "stop its processes: no raw payload is kept, so none waits to be taken apart",
}


def status(session: Session) -> Told:
    """The old systems beside the new one, whether the migration is complete, and if not, what is left to be done."""
    old, new = _old(session), _new(session)
    left = what_is_left(old, new)
    return {"old": old, "new": new, "processes": PROCESSES, "complete": not left, "left": left}


def what_is_left(old: Told, new: Told) -> list[str]:
    """In plain words; nothing if what was old is over and what is new has begun."""
    schedules, jobs, logs = old["job_schedules"], old["dispensary_crawl_jobs"], old["job_run_logs"]
    begun = new["dispensaries"]["with_resyncs"]
    reasons = {
        "nothing of the old systems is here: there is nothing to migrate": not (schedules["total"] or jobs),
        f"{schedules['enabled']} job_schedules are enabled": schedules["enabled"],
        f"{jobs.get('pending')} dispensary_crawl_jobs wait": jobs.get("pending"),
        f"{jobs.get('running')} dispensary_crawl_jobs run": jobs.get("running"),
        f"{logs['running']} runs of old jobs are not over": logs["running"],
        "no store takes part in resyncs": not begun,
    }
    return [reason for reason, holds in reasons.items() if holds]


def _old(session: Session) -> Told:
    schedules = select(func.count(), func.count().filter(JobSchedule.enabled))
    running = func.count().filter(JobRunLog.status == "running", JobRunLog.completed_at.is_(None))
    runs = select(func.count(), running, func.max(JobRunLog.started_at))
    jobs = select(DispensaryCrawlJob.status, func.count()).group_by(DispensaryCrawlJob.status)
    total, enabled = session.execute(schedules.select_from(JobSchedule)).one()
    logged, unended, last = session.execute(runs.select_from(JobRunLog)).one()
    return {
        "job_schedules": {"total": total, "enabled": enabled},
        "job_run_logs": {"total": logged, "running": unended, "last_started_at": last and last.isoformat()},
        "dispensary_crawl_jobs": {str(state): count for state, count in session.execute(jobs).all()},
    }


def _new(session: Session) -> Told:
    stores = select(func.count(), func.count().filter(text(TAKES_PART))).select_from(Dispensary)
    total, taking_part = session.execute(stores).one()
    roles = {task.name for task in (store_discovery, *PER_STORE, analytics_refresh)}
    ours = [depth for depth in insights.depth(session.connection()) if depth.role in roles]
    return {
        "dispensaries": {"total": total, "with_resyncs": taking_part},
        "tasks": {d.role: {"pending": d.pending.n, "claimed": d.claimed, "running": d.running} for d in ours},
    }


def disable_old_schedules(session: Session, *, dry_run: bool = False) -> Told:
    """No old schedule starts anything any more."""
    disable = (
        update(JobSchedule).where(JobSchedule.enabled).values(enabled=False, next_run_at=None)
        .returning(JobSchedule.job_name)
    )  # fmt: skip
    with _trial(session, dry_run):
        names = sorted(session.scalars(disable))
    return {"dry_run": dry_run, "disabled": len(names), "schedules": names}


def cancel_pending_crawl_jobs(session: Session, *, dry_run: bool = False) -> Told:
    """What waits in the old queue is not crawled any more; what runs there runs on."""
    cancel = (
        update(DispensaryCrawlJob).where(DispensaryCrawlJob.status == "pending")
        .values(status="cancelled", completed_at=func.clock_timestamp(), error_message="replaced by worker tasks")
        .returning(DispensaryCrawlJob.id)
    )  # fmt: skip
    with _trial(session, dry_run):
        cancelled = len(session.scalars(cancel).all())
    return {"dry_run": dry_run, "cancelled": cancelled}


def create_resync_tasks(session: Session, state_code: str | None = None, *, dry_run: bool = False) -> Told:
    """A resync, due now, for each store that takes part (of the state); a store that has one keeps that one."""
    taking_part = select(Dispensary.id).where(text(TAKES_PART)).order_by(Dispensary.id)
    if state_code is not None:
        taking_part = taking_part.where(Dispensary.state == state_code)
    with _trial(session, dry_run):
        tasks = product_resync.bulk([{"dispensary_id": i} for i in session.scalars(taking_part)], session=session)
    created = sum(bool(task.is_new) for task in tasks)
    return {
        "dry_run": dry_run, "state_code": state_code, "stores": len(tasks), "created": created,
        "existing": len(tasks) - created,
    }  # fmt: skip


def full_migrate(session: Session, *, dry_run: bool = False) -> Told:
    """All of it, all or none. Repeated, it creates nothing as long as its tasks' rows are kept (resyncs: that day)."""
    with _trial(session, dry_run):
        told = {
            "schedules": disable_old_schedules(session),
            "crawl_jobs": cancel_pending_crawl_jobs(session),
            "resyncs": {"created": generate_resync_tasks(session)},
            "first_tasks": {"created": _first_tasks(session)},
        }
    parts = {part: {**done, "dry_run": dry_run} for part, done in told.items()}
    return {"dry_run": dry_run, **parts, "processes": PROCESSES}


def _first_tasks(session: Session) -> int:
    """How many are new. Each bears the migration's name, so that a repetition finds it, finished or not."""
    tasks = [
        store_discovery.using(task_id=f"full_migrate {name}", session=session).delay(name) for name in sorted(PLATFORMS)
    ]
    tasks.append(analytics_refresh.using(task_id="full_migrate analytics", session=session).delay())
    return sum(bool(task.is_new) for task in tasks)


@contextmanager
def _trial(session: Session, dry_run: bool) -> Iterator[None]:
    """What is done within is undone at its end, if it is a dry run."""
    with session.begin_nested() as savepoint:
        yield
        if dry_run:
            savepoint.rollback()
