"""Sites with thumbnails as the tests see them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

from sqlalchemy import func
from sqlalchemy.orm import Session

from models import Account, AgencyWebsite, Instasite
from tasks.app import app
from tests.processes import until
from tests.systems.stack import Stack

MODELS: dict[str, type[AgencyWebsite] | type[Instasite]] = {"agency_website": AgencyWebsite, "instasite": Instasite}
KINDS = tuple(MODELS)

SWITCHED_ON = {"QM_SITES_BUILD_THUMBNAILS": "true", "QM_SITES_FIX_STALE_THUMBNAILS": "true"}


class Sites:
    """Makes sites whose previews are the sandbox's, and tells what became of them and of their tasks."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.rows, self.previews = stack, stack.rows, stack.outside.previews
        self._numbers = count()

    def new(
        self, kind: str, *, preview: str | None = None, status: str = "PUBLISHED", thumbnail: str | None = None,
        in_progress: float | None = None,
    ) -> int:  # fmt: skip
        """`in_progress`: since so many minutes. Each site has a page of its own, two of one `preview` as well."""
        thumbnails = {"desktop": thumbnail, "tablet": thumbnail, "mobile": thumbnail}
        page = f"{self.stack.outside.http_url}/preview/{next(self._numbers)}-{preview}"
        previews = {"all": page} if preview else {}
        row: dict[str, Any] = {"status": status, "details": {"previews": previews, "thumbnails": thumbnails}}
        if kind == "instasite" and status == "PUBLISHED":
            row["published_at"] = func.now()
        if in_progress is not None:
            since = func.now() - timedelta(minutes=in_progress)
            row |= {"thumbnail_build_in_progress": True, "thumbnail_process_started_at": since}
        with Session(app.database.engine) as session, session.begin():
            account = Account(name="Anna", email="anna@example.com")
            session.add(account)
            session.flush()
            site = MODELS[kind](account_id=account.id, **row)
            session.add(site)
            session.flush()
            return site.id

    def previews_of(self, kind: str, site: int, preview: str) -> None:
        """Moves its preview."""
        changed = "details = jsonb_set(details, '{previews,all}', to_jsonb(CAST(:url AS text)))"
        url = f"{self.stack.outside.http_url}/preview/{preview}"
        self.rows(f"UPDATE {MODELS[kind].__tablename__} SET {changed} WHERE id = :site", url=url, site=site)

    def row(self, kind: str, site: int) -> dict[str, Any]:
        ((row,),) = self.rows(f"SELECT to_jsonb(s) FROM {MODELS[kind].__tablename__} s WHERE id = :site", site=site)
        return dict(row)

    def standing(self, kind: str, site: int) -> tuple[bool | None, bool]:
        """Whether a build is in progress (None: unset), and whether its time is written."""
        row = self.row(kind, site)
        return row["thumbnail_build_in_progress"], row["thumbnail_process_started_at"] is not None

    def thumbnails(self, kind: str, site: int) -> dict[str, str]:
        """Once they are there."""
        until(lambda: self.row(kind, site)["details"]["thumbnails"]["desktop"], f"the thumbnails of {kind} {site}")
        return dict(self.row(kind, site)["details"]["thumbnails"])

    def task(self, kind: str, site: int) -> dict[str, Any]:
        """The latest row of its `build_thumbnail`; empty if there is none."""
        wanted = """SELECT to_jsonb(t) FROM worker_tasks t WHERE role = 'build_thumbnail' AND unique_key = :key
            ORDER BY id DESC LIMIT 1"""
        found = self.rows(wanted, key=f"{kind}:{site}")
        return dict(found[0][0]) if found else {}

    def task_of(self, task_id: str) -> dict[str, Any]:
        ((row,),) = self.rows("SELECT to_jsonb(t) FROM worker_tasks t WHERE task_id = :id", id=task_id)
        return dict(row)

    def ended(self, task_id: str, status: str = "completed") -> dict[str, Any]:
        """The task's row, once it is over."""
        until(lambda: self.task_of(task_id)["status"] == status, f"{task_id} to be {status}")
        return self.task_of(task_id)

    def asked_for(self, preview: str) -> bool:
        return preview in dict(self.previews.visits)

    def go_on(self) -> None:
        """The time of everything that waits has come."""
        self.rows("UPDATE worker_tasks SET scheduled_for = now() WHERE waits_for = 'time'")
