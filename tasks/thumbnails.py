"""Thumbnails: pictures of published sites, for agency websites and InstaSites alike.

`enqueue_missing_thumbnails` finds the sites without one, `build_thumbnail` renders them. A build says when it began
before it renders; one that fails or dies leaves that standing, and `fix_stale_thumbnails` clears it after a while: only
then is the site enqueued again. `tidy_thumbnails` removes what a build has replaced.
`QM_SITES_BUILD_THUMBNAILS=false` switches building off.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Select, func, select, text, update
from sqlalchemy.orm import Session

from celeriac import ONE, Permanent, Task, days
from models import AgencyWebsite, Instasite
from models.thumbnails import NOT_IN_PROGRESS
from tasks import browser
from tasks.app import app
from tasks.browser import Viewports
from tasks.environment import number
from tasks.pace import waiting_out_limits
from tasks.storage import Store
from tasks.text import without_credentials

logger = logging.getLogger(__name__)

Kind = Literal["agency_website", "instasite"]
Site = type[AgencyWebsite] | type[Instasite]

SITES: Mapping[Kind, Site] = {"agency_website": AgencyWebsite, "instasite": Instasite}

#: Width and height in CSS pixels.
VIEWPORTS: Viewports = {"desktop": (1440, 900), "tablet": (768, 1024), "mobile": (390, 844)}

#: For a site's pictures, seconds: most take 10 to 30, slow ones 3 minutes.
TIMEOUT = number("THUMBNAILS_TIMEOUT_SECONDS", 180, at_least=1)

#: Seconds before the first retry of a page that failed; each further one waits twice as long.
RETRY = number("THUMBNAILS_RETRY_SECONDS", 30, at_least=0.1)

#: Seconds for which pictures that were replaced are kept: pages that show them may be open still.
KEEP_OLD = number("THUMBNAILS_KEEP_OLD_SECONDS", 3600, at_least=0)

#: Sites a transaction enqueues; pictures that one task removes, as its arguments may not have any size.
BATCH, MOST = 500, 1000


@app.task(
    bind=True, role="build_thumbnail", fair_by="account_id", lock_by="{kind}_id:{site_id}",
    unique_by="{kind}:{site_id}", chunk=1, autoretry_for=(Exception,), max_retries=3, retry_backoff=RETRY,
    retry_backoff_max=10 * RETRY, timeout=TIMEOUT + 30, stale_after=120, keep=days(7),
    memory_per_task=browser.MEMORY, enabled_by="QM_SITES_BUILD_THUMBNAILS",
)  # fmt: skip
def build_thumbnail(self: Task[..., Any], kind: Kind, site_id: int, account_id: int) -> dict[str, Any]:  # noqa: ARG001 - fair_by
    """Renders a published site that has no desktop thumbnail yet; where they are is written with the task's outcome.

    An InstaSite's build and its thumbnails share a lock: they never run at one time.
    """
    if kind not in SITES:
        raise Permanent(f"there is no kind of site {kind!r}; there are: {', '.join(SITES)}")
    with waiting_out_limits(self):
        program = browser.found()
        url = begin(self, SITES[kind], site_id)
        if url is None:
            return {"skipped": "not published, gone, or with a thumbnail already"}
        taken = browser.pictures(program, url, VIEWPORTS, TIMEOUT)
    store, folder = Store.from_env(os.environ), f"{kind}/{site_id}"
    thumbnails = {name: store.put(folder, name, picture) for name, picture in taken.items()}
    finish(self, SITES[kind], site_id, thumbnails)
    if replaced := listed(store, folder) - names_in(thumbnails):
        tidy_thumbnails.using(countdown=KEEP_OLD).delay(kind, site_id, sorted(replaced)[:MOST])
    return thumbnails


def listed(store: Store, folder: str) -> set[str]:
    """What lies in the site's folder; nothing where the store does not tell: the next search asks it again."""
    try:
        return store.names(folder)
    except Exception as error:
        told = without_credentials(str(error))
        logger.warning("the pictures in %s cannot be listed: %s: %s", folder, type(error).__name__, told)
        return set()


def begin(task: Task[..., Any], site: Site, site_id: int) -> str | None:
    """Writes that the build began, for all to see, and returns where the preview is. None: there is nothing to do."""
    began = {"thumbnail_build_in_progress": True, "thumbnail_process_started_at": func.clock_timestamp()}
    wanted = update(site).where(site.id == site_id, site.status == "PUBLISHED", text(site.NO_DESKTOP)).values(began)
    with task.early_commit() as session:
        details = session.execute(wanted.returning(site.details)).scalar_one_or_none()
        if details is None:
            return None
        url = (details.get("previews") or {}).get("all") or ""
        if not url.startswith(("http://", "https://")):
            raise Permanent(f"its preview is no address of a page: {without_credentials(url)!r}")
    return str(url)


def finish(task: Task[..., Any], site: Site, site_id: int, thumbnails: Mapping[str, str]) -> None:
    details = site.details.concat({"thumbnails": thumbnails})
    task.session.execute(update(site).where(site.id == site_id).values({**NOT_IN_PROGRESS, "details": details}))


@app.task(
    bind=True, role="tidy_thumbnails", chunk=1, autoretry_for=(Exception,), max_retries=3, retry_backoff=60,
    timeout=120, stale_after=120, keep=days(1), enabled_by="QM_SITES_BUILD_THUMBNAILS",
)  # fmt: skip
def tidy_thumbnails(self: Task[..., Any], kind: Kind, site_id: int, names: Sequence[str] = ()) -> dict[str, int]:
    """Removes these pictures of the site, which were nobody's when this was enqueued, unless its row refers to one.

    What was replaced since then is another task's, whose time comes later. A task that names none was enqueued by an
    older release: what it was about, `find_old_thumbnails` finds.
    """
    if not names:
        return {"removed": 0}
    with self.early_commit() as session:
        old = set(names) - referred(session, SITES[kind], [site_id]).get(site_id, set())
    Store.from_env(os.environ).remove(f"{kind}/{site_id}", old)
    return {"removed": len(old)}


def referred(session: Session, site: Site, ids: Sequence[int]) -> dict[int, set[str]]:
    """By site, the names of the files that it refers to."""
    found = session.execute(select(site.id, site.details["thumbnails"]).where(site.id.in_(ids)))
    return {site_id: names_in(urls or {}) for site_id, urls in found}


def names_in(thumbnails: Mapping[str, Any]) -> set[str]:
    return {str(url).rpartition("/")[2] for url in thumbnails.values() if url}


@app.task(
    bind=True, role="enqueue_missing_thumbnails", unique_by=ONE, autoretry_for=(Exception,), max_retries=3,
    retry_backoff=10, timeout=300, stale_after=120, keep=days(1), enabled_by="QM_SITES_BUILD_THUMBNAILS",
)  # fmt: skip
def enqueue_missing_thumbnails(self: Task[..., Any]) -> dict[str, int]:
    """Enqueues every published site without a thumbnail that has a preview and no build in progress; how many are new.

    In batches, each a transaction of its own. A site that is enqueued already stays as it is.
    """
    return {site.__tablename__: _enqueue_missing(self, kind, site) for kind, site in SITES.items()}


def _enqueue_missing(task: Task[..., Any], kind: str, site: Site) -> int:
    new, after, found = 0, 0, BATCH
    while found == BATCH:
        with task.early_commit() as session:
            sites = session.execute(missing(site, after)).all()
            calls = [{"kind": kind, "site_id": site_id, "account_id": account} for site_id, account in sites]
            new += sum(bool(enqueued.is_new) for enqueued in build_thumbnail.bulk(calls, session=session))
        found, after = len(sites), sites[-1].id if sites else after
        task.progress({"table": site.__tablename__, "new": new})
    return new


def missing(site: Site, after: int) -> Select[int, int]:
    """The next sites to enqueue whose id is above `after`: id and account."""
    wanted = select(site.id, site.account_id).where(text(site.MISSING), site.id > after)
    return wanted.order_by(site.id).limit(BATCH)
