"""Locks: what is held, by whom, who stands behind? There is no force: the index is the promise."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from celeriac import insights
from celeriac.dashboard.guard import May
from celeriac.dashboard.page import Page

router = APIRouter()

Viewer = Annotated[Page, Depends(May("view"))]


@router.get("/locks")
def listed(page: Viewer) -> Response:
    page.ask()
    return page.show("locks.html", "Locks", locks=page.panel(insights.locks))


@router.get("/locks/{key:path}")
def shown(key: str, page: Viewer) -> Response:
    page.ask()
    lock, queue = page.panel(insights.lock, key), page.panel(insights.queue_of, key)
    return page.show("lock.html", f"Lock {key}", key=key, lock=lock, queue=queue)
