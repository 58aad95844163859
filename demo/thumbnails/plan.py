"""The sites of the demo, of both kinds alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import func
from sqlalchemy.orm import Session

from demo.size import sized
from models import Account, AgencyWebsite, Instasite

Fate = Literal["rendered", "left alone", "failed"]

#: Their pages answer so: late by so many seconds, or never with success.
LATE, BROKEN = "?late=2", "?status=503"


@dataclass(frozen=True)
class Case:
    """`sites` of each kind; `minutes`: in progress since then."""

    name: str
    sites: int
    fate: Fate
    minutes: int | None = None
    status: str = "PUBLISHED"
    thumbnail: str | None = None
    query: str = ""


CASES = (
    Case("new", sized(5, 1), "rendered"),
    Case("stuck", sized(3, 1), "rendered", minutes=180),
    Case("rebuilt", sized(2, 1), "rendered"),
    Case("late", 1, "rendered", query=LATE),
    Case("broken", 1, "failed", query=BROKEN),
    Case("draft", sized(2, 1), "left alone", status="DRAFT"),
    Case("done", sized(2, 1), "left alone", thumbnail="https://example.com/already.png"),
    Case("begun", 1, "left alone", minutes=5),
)

KINDS: dict[str, type[AgencyWebsite] | type[Instasite]] = {"agency_website": AgencyWebsite, "instasite": Instasite}


def total(fate: Fate) -> int:
    return len(KINDS) * sum(case.sites for case in CASES if case.fate == fate)


def create(session: Session, http_url: str) -> dict[tuple[str, int], Case]:
    """The case of each site, by kind and id. Each kind has an account of its own."""
    made: dict[tuple[str, int], Case] = {}
    for kind, model in KINDS.items():
        account = Account(name=kind, email=f"owner@{kind}.example")
        session.add(account)
        session.flush()
        for case in CASES:
            made |= {
                (kind, site): case for site in _sites(session, model, account.id, case, f"{http_url}/preview/{kind}")
            }
    return made


def leave_old(cases: Mapping[tuple[str, int], Case], url: str) -> int:
    """Pictures of sites that were rendered before they were built anew, as a build of then left them; how many."""
    from tasks.storage import Store

    store, rebuilt = Store(url), [site for site, case in cases.items() if case.name == "rebuilt"]
    return len([store.put(f"{kind}/{site}", "desktop", b"old") for kind, site in rebuilt])


def _sites(session: Session, model: Any, account: int, case: Case, url: str) -> Iterator[int]:
    for n in range(case.sites):
        previews = {"all": f"{url}-{case.name}-{n}{case.query}"}
        details = {"previews": previews, "thumbnails": {"desktop": case.thumbnail}}
        site = model(account_id=account, status=case.status, details=details, **_more(model, case))
        session.add(site)
        session.flush()
        yield site.id


def _more(model: Any, case: Case) -> dict[str, Any]:
    published = model is Instasite and case.status == "PUBLISHED"
    more: dict[str, Any] = {"published_at": func.now()} if published else {}
    if case.minutes is not None:
        since = func.now() - timedelta(minutes=case.minutes)
        more |= {"thumbnail_build_in_progress": True, "thumbnail_process_started_at": since}
    return more
