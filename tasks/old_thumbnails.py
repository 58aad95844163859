"""Pictures nobody refers to, wherever they come from: crashes, sites that were deleted, builds whose tidying failed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from celeriac import ONE, Task, days
from tasks.app import app
from tasks.storage import Store
from tasks.thumbnails import SITES, referred, tidy_thumbnails

#: Folders a transaction compares with their sites.
BATCH = 500


@app.task(
    bind=True, role="find_old_thumbnails", unique_by=ONE, autoretry_for=(Exception,), max_retries=3, retry_backoff=60,
    timeout=600, stale_after=120, keep=days(30), enabled_by="QM_SITES_BUILD_THUMBNAILS",
)  # fmt: skip
def find_old_thumbnails(self: Task[..., Any]) -> dict[str, int]:
    """Enqueues the tidying of each site whose folder has more than its row refers to; in batches."""
    store = Store.from_env(os.environ)
    folders, seen, new = _folders(store), 0, 0
    while some := list(islice(folders, BATCH)):
        there = {(kind, site_id): store.names(f"{kind}/{site_id}") for kind, site_id in some}
        with self.early_commit() as session:
            kept = {
                (kind, site_id): names
                for kind, site in SITES.items()
                for site_id, names in referred(session, site, [i for of, i in some if of == kind]).items()
            }
            more = [one for one, names in there.items() if names - kept.get(one, set())]
            calls = [{"kind": kind, "site_id": site_id} for kind, site_id in more]
            new += sum(bool(enqueued.is_new) for enqueued in tidy_thumbnails.bulk(calls, session=session))
        seen += len(some)
        self.progress({"sites": seen, "enqueued": new})
    return {"sites": seen, "enqueued": new}


def _folders(store: Store) -> Iterator[tuple[str, int]]:
    """Kind and id; what else lies there is left alone."""
    for folder in store.folders():
        kind, _, site_id = folder.partition("/")
        if kind in SITES and site_id.isdecimal():
            yield kind, int(site_id)
