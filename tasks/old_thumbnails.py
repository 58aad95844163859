"""Pictures nobody refers to, wherever they come from: crashes, sites that were deleted, builds whose tidying failed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from celeriac import ONE, Task, days
from tasks.app import app
from tasks.storage import Store
from tasks.thumbnails import KEEP_OLD, MOST, SITES, Kind, listed, referred, tidy_thumbnails

#: Folders a transaction compares with their sites.
BATCH = 500

#: Kind and id of its site.
Folder = tuple[Kind, int]


@app.task(
    bind=True, role="find_old_thumbnails", unique_by=ONE, autoretry_for=(Exception,), max_retries=3, retry_backoff=60,
    timeout=600, stale_after=120, keep=days(30), enabled_by="QM_SITES_BUILD_THUMBNAILS",
)  # fmt: skip
def find_old_thumbnails(self: Task[..., Any]) -> dict[str, int]:
    """Enqueues the tidying of each site whose folder has more than its row refers to; in batches.

    As of now, that is nobody's: after THUMBNAILS_KEEP_OLD_SECONDS it is removed.
    """
    store = Store.from_env(os.environ)
    folders, seen, new = _folders(store), 0, 0
    while some := list(islice(folders, BATCH)):
        there = {(kind, site_id): listed(store, f"{kind}/{site_id}") for kind, site_id in some}
        with self.early_commit() as session:
            calls = [(kind, site_id, names) for (kind, site_id), names in nobodys(session, there).items()]
            new += len(tidy_thumbnails.bulk(calls, session=session, countdown=KEEP_OLD))
        seen += len(some)
        self.progress({"sites": seen, "enqueued": new})
    return {"sites": seen, "enqueued": new}


def nobodys(session: Session, there: Mapping[Folder, set[str]]) -> dict[Folder, list[str]]:
    """Of the files in each site's folder, those that its row does not refer to, MOST of them at most."""
    found: dict[Folder, list[str]] = {}
    for kind, site in SITES.items():
        ids = [site_id for of, site_id in there if of == kind]
        # INVARIANT: asked before what is referred to. A build that is over by then has its pictures in the row; one
        # that is not may have put some that the row does not refer to yet, so its site is left to another time.
        rendered = set(
            session.scalars(select(site.id).where(site.id.in_(ids), site.thumbnail_build_in_progress.is_(True)))
        )
        kept = referred(session, site, ids)
        for site_id in ids:
            if site_id not in rendered and (more := there[kind, site_id] - kept.get(site_id, set())):
                found[kind, site_id] = sorted(more)[:MOST]
    return found


def _folders(store: Store) -> Iterator[Folder]:
    """What else lies there is left alone."""
    for folder in store.folders():
        given, _, site_id = folder.partition("/")
        for kind in SITES:
            if kind == given and site_id.isdecimal():
                yield kind, int(site_id)
