"""The thumbnail health check: builds that began long ago and never ended are reset, so that they can be tried again.

A build is stuck if the desktop thumbnail is missing, it is marked as in progress, and it began longer ago than
`THUMBNAILS_STALE_SECONDS` (2 hours), or outside production (`NODE_ENV` is not `production`)
`THUMBNAILS_STALE_SECONDS_OUTSIDE_PRODUCTION` (15 minutes); an InstaSite must be published, too.
`QM_SITES_FIX_STALE_THUMBNAILS=false` switches it off.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, and_, cast, delete, extract, func, select, text, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningUpdate

from celeriac import ONE, Task, days
from models import ThumbnailCheck
from models.thumbnails import NOT_IN_PROGRESS
from tasks.app import app
from tasks.environment import number
from tasks.thumbnails import SITES, Site

logger = logging.getLogger(__name__)

HOUR = 3600.0

#: Days for which checks are kept.
CHECKS_KEPT = 30

#: Rows a transaction resets, and how many of the oldest are told.
BATCH, OLDEST = 1000, 10


def stale_after(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds. Raises ConfigurationError."""
    if environ.get("NODE_ENV") == "production":
        return number("THUMBNAILS_STALE_SECONDS", 2 * HOUR, at_least=1, environ=environ)
    return number("THUMBNAILS_STALE_SECONDS_OUTSIDE_PRODUCTION", HOUR / 4, at_least=1, environ=environ)


@dataclass(frozen=True)
class StuckSite:
    kind: str
    id: int
    hours: float


@dataclass(frozen=True)
class Stuck:
    """How many builds are stuck, by table, and the oldest of them."""

    counts: Mapping[str, int]
    oldest: list[StuckSite]


@app.task(
    bind=True, role="fix_stale_thumbnails", unique_by=ONE, max_retries=0, timeout=300, stale_after=120, keep=days(7),
    enabled_by="QM_SITES_FIX_STALE_THUMBNAILS",
)  # fmt: skip
def fix_stale_thumbnails(self: Task[..., Any]) -> dict[str, Any]:
    """Resets what is stuck, in batches, each a transaction of its own. One that fails is not retried: the next comes.

    Its result: how many it reset, the oldest of those it found, and how many are stuck still. It leaves its counts in
    `thumbnail_checks`.
    """
    try:
        with self.early_commit() as session:
            found = stuck(session)
        done = {site.__tablename__: _reset_all(self, site) for site in SITES.values()}
        still = stuck(self.session)
        remember(self.session, found, done, still)
    except Exception:
        logger.exception("ThumbnailHealthCheck: Error in thumbnail health check")
        raise
    if any(done.values()):
        logger.info(
            "ThumbnailHealthCheck: Reset %d stuck agency website jobs and %d instasite jobs",
            done["agency_websites"], done["instasites"],
        )  # fmt: skip
    return {"reset": done, "stuck": dict(still.counts), "oldest": [asdict(site) for site in found.oldest]}


def _reset_all(task: Task[..., Any], site: Site) -> int:
    statement = reset(site, stale_after())
    done, last = 0, BATCH
    while last == BATCH:
        with task.early_commit() as session:
            last = len(session.execute(statement).all())
        done += last
        task.progress({"table": site.__tablename__, "reset": done})
    return done


def reset(site: Site, seconds: float) -> ReturningUpdate[int]:
    """Clears flag and time of a batch of the oldest stuck builds; their ids.

    A site that is locked is being finished or begun right now: it is left to the next run.
    """
    found = select(site.id).where(_is_stuck(site, seconds)).order_by(site.thumbnail_process_started_at)
    oldest = found.limit(BATCH).with_for_update(skip_locked=True, key_share=True).cte("oldest")
    return update(site).where(site.id.in_(select(oldest.c.id))).values(NOT_IN_PROGRESS).returning(site.id)


def _is_stuck(site: Site, seconds: float) -> ColumnElement[bool]:
    return and_(text(site.IN_PROGRESS), site.thumbnail_process_started_at < func.now() - timedelta(seconds=seconds))


def stuck(session: Session) -> Stuck:
    """What is stuck now, on the database's clock."""
    seconds = stale_after()
    counts = {site.__tablename__: session.scalars(count(site, seconds)).one() for site in SITES.values()}
    oldest = [
        StuckSite(kind, site_id, round(hours, 1))
        for kind, site in SITES.items()
        for site_id, hours in session.execute(longest(site, seconds))
    ]
    return Stuck(counts, heapq.nlargest(OLDEST, oldest, key=lambda found: found.hours))


def remember(session: Session, found: Stuck, done: Mapping[str, int], still: Stuck) -> None:
    """A row for each table, kept for a month."""
    session.execute(delete(ThumbnailCheck).where(ThumbnailCheck.at < func.now() - timedelta(days=CHECKS_KEPT)))
    session.add_all(
        ThumbnailCheck(sites=table, found=n, reset=done[table], remaining=still.counts[table])
        for table, n in found.counts.items()
    )


def count(site: Site, seconds: float) -> Select[int]:
    return select(func.count()).select_from(site).where(_is_stuck(site, seconds))


def longest(site: Site, seconds: float) -> Select[int, float]:
    """The oldest of the stuck builds: id, and hours since each began."""
    began = site.thumbnail_process_started_at
    hours = cast(extract("epoch", func.now() - began) / HOUR, Float)
    return select(site.id, hours).where(_is_stuck(site, seconds)).order_by(began).limit(OLDEST)
