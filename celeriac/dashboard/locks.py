"""Locks: which keys are held, by which task, and which tasks wait? No button frees a lock: a unique index keeps it
exclusive.
"""

from __future__ import annotations

import json

from fastapi import APIRouter, Response

from celeriac import insights
from celeriac.dashboard.guard import Viewer
from celeriac.dashboard.page import Elsewhere

router = APIRouter()


#: Unique keys on a page.
ROWS = 50


@router.get("/locks")
def listed(page: Viewer) -> Response:
    """List lock keys. The former address of unique keys, once a tab of this page, redirects to their page."""
    asked = page.ask("tab", "role", "after")
    if asked.pop("tab", None) == "unique":
        raise Elsewhere(page.to(f"unique-keys{'.json' if page.wants_json else ''}", **asked))
    return page.show("locks.html", "Locks", locks=page.panel(insights.locks))


@router.get("/unique-keys")
def unique(page: Viewer) -> Response:
    asked = page.ask("role", "after")
    role = asked.get("role")
    keys = page.panel(insights.unique_keys, role, limit=ROWS + 1, after=_place(asked.get("after")))
    last = None if keys.stopped or len(keys.value) <= ROWS else keys.value[ROWS - 1]
    following = last and json.dumps([last.role, last.unique_key], ensure_ascii=False)
    return page.show("unique-keys.html", "Unique keys", keys=keys, rows=ROWS, role=role, next=following)


def _place(after: str | None) -> tuple[str, str] | None:
    """Return the place in the list; None, the beginning, if it is invalid."""
    try:
        role, key = json.loads(after or "")
    except (ValueError, TypeError):
        return None
    return (role, key) if isinstance(role, str) and isinstance(key, str) else None


@router.get("/locks/{key:name}")
def shown(key: str, page: Viewer) -> Response:
    page.ask()
    lock, queue = page.panel(insights.lock, key), page.panel(insights.queue_of, key)
    return page.show("lock.html", f"Lock {key}", key=key, lock=lock, queue=queue)
