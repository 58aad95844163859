"""The thumbnail health check, by its document's own recipes: what is stuck is reset, what is not is left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from celeriac.repair import sweep
from models import Account, AgencyWebsite, Instasite
from tasks.app import app
from tasks.stale_thumbnails import fix_stale_thumbnails, stuck
from tests.processes import ROOT, Running, until
from tests.systems.sites import KINDS, Sites
from tests.systems.stack import Stack

HOUR = 60
RESET, UNTOUCHED = (None, False), (True, True)

#: Minutes in progress and what else the row has; whether it is reset in production, and outside.
RECIPES: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "stuck for 3 hours": ({"in_progress": 3 * HOUR}, True, True),
    "stuck for 20 minutes": ({"in_progress": 20}, False, True),
    "fresh": ({"in_progress": 5}, False, False),
    "with a thumbnail": ({"in_progress": 3 * HOUR, "thumbnail": "https://example.com/1.png"}, False, False),
    "without a time": ({}, False, False),
}


@pytest.fixture(scope="module")
def fixer(stack: Stack, sites: Sites) -> Running:
    return stack.worker("fix_stale_thumbnails", NODE_ENV="production")


@pytest.fixture(autouse=True)
def no_sites(sites: Sites) -> Iterator[None]:
    yield
    sites.rows("DELETE FROM agency_websites")
    sites.rows("DELETE FROM instasites")


def recipes(sites: Sites) -> dict[tuple[str, str], int]:
    made = {(kind, name): sites.new(kind, **options) for kind in KINDS for name, (options, *_) in RECIPES.items()}
    return made | {(kind, "draft"): sites.new(kind, status="DRAFT", in_progress=3 * HOUR) for kind in KINDS}


def reset_by(sites: Sites, made: dict[tuple[str, str], int]) -> set[tuple[str, str]]:
    """Which of them one run resets; the others are as they were."""
    before = {which: sites.standing(which[0], site) for which, site in made.items()}
    sites.ended(fix_stale_thumbnails.delay().id)
    after = {which: sites.standing(which[0], site) for which, site in made.items()}
    changed = {which for which in made if after[which] != before[which]}
    assert {after[which] for which in changed} <= {RESET}
    return changed


def expected(column: int) -> set[tuple[str, str]]:
    """Of agency websites drafts, too: only an InstaSite must be published."""
    named = {name for name, recipe in RECIPES.items() if recipe[column]}
    return {(kind, name) for kind in KINDS for name in named} | {("agency_website", "draft")}


def test_in_production_what_is_stuck_for_2_hours_is_reset(sites: Sites, fixer: Running) -> None:
    assert reset_by(sites, recipes(sites)) == expected(1)


THREE_HOURS_AGO = datetime.now(UTC) - timedelta(hours=3)


def as_documented(model: type[AgencyWebsite] | type[Instasite], preview: str, **ours: Any) -> AgencyWebsite | Instasite:
    """As the document creates it, with what our tables want besides."""
    return model(
        status="PUBLISHED",
        details={
            "previews": {"all": preview},
            "thumbnails": {"desktop": None, "tablet": None, "mobile": None},
        },
        thumbnail_build_in_progress=True,
        thumbnail_process_started_at=THREE_HOURS_AGO,
        **ours,
    )


def test_the_documents_own_sites_are_counted_listed_and_unset(sites: Sites, fixer: Running) -> None:
    """Its recipes, one after the other: create stuck jobs, monitor them, verify the reset."""
    with Session(app.database.engine) as session:
        account = Account(name="Anna", email="anna@example.com")
        session.add(account)
        session.flush()
        made = [
            as_documented(AgencyWebsite, "https://preview.example.com/site/123", account_id=account.id),
            as_documented(
                Instasite, "https://preview.example.com/site/456", account_id=account.id, published_at=THREE_HOURS_AGO
            ),
        ]
        session.add_all(made)
        session.commit()
        for model in (AgencyWebsite, Instasite):
            is_stuck = (
                model.details["thumbnails"]["desktop"].as_string().is_(None),
                model.thumbnail_build_in_progress.is_(True),
                model.thumbnail_process_started_at < datetime.now(UTC) - timedelta(hours=2),
            )
            assert session.scalars(select(func.count()).select_from(model).where(*is_stuck)).one() == 1
            in_progress = select(model).where(model.thumbnail_build_in_progress, is_stuck[-1])
            (oldest,) = session.scalars(in_progress.order_by(model.thumbnail_process_started_at).limit(10))
            assert oldest in made
        session.commit()
        sites.ended(fix_stale_thumbnails.delay().id)
        for site in made:
            session.refresh(site)
            assert (site.thumbnail_build_in_progress, site.thumbnail_process_started_at) == (None, None)


def test_it_tells_what_it_reset_the_ten_oldest_and_what_is_stuck_still(sites: Sites, fixer: Running) -> None:
    agency = [sites.new("agency_website", in_progress=(3 + n) * HOUR) for n in range(9)]
    insta = [sites.new("instasite", in_progress=(3.5 + n) * HOUR) for n in range(9)]
    told = sites.ended(fix_stale_thumbnails.delay().id)["result"]
    assert (told["reset"], told["stuck"]) == (
        {"agency_websites": 9, "instasites": 9},
        {"agency_websites": 0, "instasites": 0},
    )
    oldest = [("instasite", insta[8], 11.5), ("agency_website", agency[8], 11.0), ("instasite", insta[7], 10.5)]
    assert [(site["kind"], site["id"], site["hours"]) for site in told["oldest"]][:3] == oldest
    assert len(told["oldest"]) == 10
    assert "ThumbnailHealthCheck: Reset 9 stuck agency website jobs and 9 instasite jobs" in fixer.printed()


def test_nothing_is_logged_where_nothing_was_reset(sites: Sites, fixer: Running) -> None:
    before = fixer.printed().count("ThumbnailHealthCheck")
    told = sites.ended(fix_stale_thumbnails.delay().id)["result"]
    assert told == {"reset": {"agency_websites": 0, "instasites": 0}, "stuck": told["reset"], "oldest": []}
    assert fixer.printed().count("ThumbnailHealthCheck") == before


def test_a_site_that_is_being_finished_is_neither_waited_for_nor_reset(sites: Sites, fixer: Running) -> None:
    site, other = (sites.new("instasite", in_progress=3 * HOUR) for _ in range(2))
    with app.database.engine.begin() as busy:
        busy.exec_driver_sql(f"SELECT FROM instasites WHERE id = {site} FOR UPDATE")
        told = sites.ended(fix_stale_thumbnails.delay().id)["result"]
    assert (told["reset"]["instasites"], told["stuck"]["instasites"]) == (1, 1)
    assert (sites.standing("instasite", site), sites.standing("instasite", other)) == (UNTOUCHED, RESET)


def test_it_never_overlaps_itself(sites: Sites, fixer: Running) -> None:
    site = sites.new("instasite", in_progress=3 * HOUR)
    with app.database.engine.begin() as busy:
        busy.exec_driver_sql("LOCK TABLE instasites IN EXCLUSIVE MODE")
        first = fix_stale_thumbnails.delay()
        until(lambda: sites.task_of(first.id)["status"] == "running", "it to run")
        second = fix_stale_thumbnails.delay()
        assert (second.id, second.is_new) == (first.id, False)
    sites.ended(first.id)
    assert sites.standing("instasite", site) == RESET


@contextmanager
def table_away(sites: Sites) -> Iterator[None]:
    sites.rows("ALTER TABLE agency_websites RENAME TO away")
    try:
        yield
    finally:
        sites.rows("ALTER TABLE away RENAME TO agency_websites")


def test_a_failure_is_told_not_retried_and_does_not_lock_it_out(sites: Sites, fixer: Running) -> None:
    site = sites.new("instasite", in_progress=3 * HOUR)
    with table_away(sites):
        failed = sites.ended(fix_stale_thumbnails.delay().id, "failed")
    assert (failed["retry_count"], failed["max_retries"]) == (0, 0)
    assert "ThumbnailHealthCheck: Error in thumbnail health check" in fixer.printed()
    sites.ended(fix_stale_thumbnails.delay().id)
    assert sites.standing("instasite", site) == RESET


def test_what_was_stuck_is_kept_run_by_run(sites: Sites, fixer: Running) -> None:
    sites.rows("DELETE FROM thumbnail_checks")
    sites.rows(CHECKED, at="31 days", n=99)
    for n in (2, 0):
        for _ in range(n):
            sites.new("instasite", in_progress=3 * HOUR)
        sites.ended(fix_stale_thumbnails.delay().id)
    (block,) = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "thumbnails.md").read_text(), re.DOTALL)
    assert [row[1:] for row in sites.rows(block)] == [("agency_websites", 0, 0), ("instasites", 2, 2)]
    kept = "SELECT found, reset, remaining FROM thumbnail_checks WHERE sites = 'instasites' ORDER BY id"
    assert sites.rows(kept) == [(2, 2, 0), (0, 0, 0)]


CHECKED = """
INSERT INTO thumbnail_checks (at, sites, found, reset, remaining)
VALUES (now() - CAST(:at AS interval), 'instasites', :n, :n, 0)
"""


@pytest.mark.parametrize(("found", "fires"), [([100, 0, 0], []), ([11, 40], []), ([5, 40, 11, 12], [("instasites",)])])
def test_many_that_get_stuck_hour_after_hour_are_told(sites: Sites, found: list[int], fires: list[object]) -> None:
    """A restart that leaves a hundred, once, is nothing to speak of."""
    sites.rows("DELETE FROM thumbnail_checks")
    for hours, n in enumerate(reversed(found)):
        sites.rows(CHECKED, at=f"{hours} hours", n=n)
    sweep(app, "alerts")
    assert sites.rows("SELECT subject FROM celeriac.alerts WHERE name = 'thumbnails_keep_getting_stuck'") == fires


def test_what_is_stuck_can_be_asked_without_fixing_it(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_ENV", "production")
    site = sites.new("agency_website", in_progress=2.5 * HOUR)
    with Session(app.database.engine) as session:
        now = stuck(session)
        monkeypatch.setenv("THUMBNAILS_STALE_SECONDS", "10800")
        assert stuck(session).counts["agency_websites"] == 0
    assert (now.counts, [(s.kind, s.id, s.hours) for s in now.oldest]) == (
        {"agency_websites": 1, "instasites": 0}, [("agency_website", site, 2.5)]
    )  # fmt: skip
    assert sites.standing("agency_website", site) == UNTOUCHED


def test_what_stays_stuck_is_told(sites: Sites, fixer: Running) -> None:
    sites.new("agency_website", in_progress=3 * HOUR)
    for _ in range(2):
        sites.rows("UPDATE celeriac.alerts_pending SET since = since - interval '3 hours'")
        sweep(app, "alerts")
    told = "SELECT subject, says FROM celeriac.alerts WHERE name = 'stuck_thumbnails'"
    assert sites.rows(told) == [("agency_websites", "1 builds of thumbnails are stuck, and nobody frees them")]


def test_its_schedule_enqueues_it_unless_it_is_switched_off(sites: Sites, fixer: Running, stack: Stack) -> None:
    site = sites.new("instasite", in_progress=3 * HOUR)
    schedule = "SELECT enabled FROM celeriac.scheduled_jobs WHERE name = 'fix-stale-thumbnails'"
    beat = stack.beat(QM_SITES_FIX_STALE_THUMBNAILS="false", CELERIAC_SCHEDULE_FIX_STALE_THUMBNAILS="@every 1s")
    until(lambda: sites.rows("SELECT FROM celeriac.beats") and sites.rows(schedule) == [(False,)], "beat, without it")
    assert sites.standing("instasite", site) == UNTOUCHED
    sites.rows("UPDATE celeriac.scheduled_jobs SET enabled = true WHERE name = 'fix-stale-thumbnails'")
    until(lambda: sites.standing("instasite", site) == RESET, "the schedule")
    beat.stop()


def test_outside_production_15_minutes_are_enough(sites: Sites, fixer: Running, stack: Stack) -> None:
    """Last: it needs a worker of its own."""
    fixer.stop()
    stack.worker("fix_stale_thumbnails", NODE_ENV="development")
    assert reset_by(sites, recipes(sites)) == expected(2)
