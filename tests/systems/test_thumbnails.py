"""Thumbnails through public names: a real worker with a real Chromium, Postgres, Redis, and the sandbox's pages."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from sqlalchemy.orm import Session

import sandbox
from celeriac import repair
from models import Instasite, Template
from tasks.app import app
from tasks.instasites import build
from tasks.old_thumbnails import find_old_thumbnails, nobodys
from tasks.thumbnails import MOST, VIEWPORTS, build_thumbnail, enqueue_missing_thumbnails
from tests.processes import Running, until
from tests.systems.sites import KINDS, Sites
from tests.systems.stack import Stack, silence

SOONEST = "SELECT min(scheduled_for) FROM worker_tasks WHERE role = 'tidy_thumbnails' AND waits_for = 'time'"
EVENTS = """SELECT count(*) FROM celeriac.task_events e JOIN worker_tasks t ON t.id = e.task
WHERE e.kind = :kind AND t.kwargs @> jsonb_build_object('site_id', CAST(:site AS bigint))"""

QUEUES = (
    "build_thumbnail", "enqueue_missing_thumbnails", "instasite_build", "tidy_thumbnails", "find_old_thumbnails",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(stack: Stack, chromium: str) -> Path:
    """A link that tests may take away."""
    link = stack.logs / "chromium"
    link.symlink_to(chromium)
    return link


@pytest.fixture(scope="module")
def builder(sites: Sites, stack: Stack, browser: Path) -> Running:
    stack.environ |= {
        "THUMBNAILS_URL": (stack.logs / "thumbnails").as_uri(),
        "BROWSER_LOOK_SECONDS": "0.2",
        "CHROMIUM_PATH": str(browser),
        "CPU_BACKOFF_THRESHOLD": "1",
    }
    return stack.worker(*QUEUES)


def size(address: str) -> tuple[int, ...]:
    with open(urlsplit(address).path, "rb") as file:
        return struct.unpack(">II", file.read(24)[16:])


def enqueue(kind: str, site: int) -> None:
    assert build_thumbnail.delay(kind=kind, site_id=site, account_id=1).is_new


def running_in(sites: Sites, kind: str, site: int) -> int:
    """The process that renders it, once it does."""
    preview = sites.row(kind, site)["details"]["previews"]["all"].rpartition("/")[2]
    until(lambda: sites.asked_for(preview), "the page to be asked for")
    return int(sites.task(kind, site)["worker_pid"])


@contextmanager
def paused(worker: Running) -> Iterator[None]:
    """Its processes stand still meanwhile, and go on whatever happens: the tests after this one need them."""
    worker.signal_all(signal.SIGSTOP)
    try:
        yield
    finally:
        worker.signal_all(signal.SIGCONT)


# -- building ----------------------------------------------------------------------------------------------------------


def test_published_sites_without_a_thumbnail_are_found_rendered_and_marked(sites: Sites, builder: Running) -> None:
    wanted = [(kind, sites.new(kind, preview=f"found-{kind}")) for kind in KINDS]
    left = [
        (kind, sites.new(kind, **options))
        for kind in KINDS
        for options in ({"preview": "draft", "status": "DRAFT"}, {"preview": "has one", "thumbnail": "x"}, {},
                        {"preview": "in progress", "in_progress": 5})
    ]  # fmt: skip
    pass_ = sites.ended(enqueue_missing_thumbnails.delay().id)
    assert pass_["result"] == {"agency_websites": 1, "instasites": 1}
    for kind, site in wanted:
        thumbnails = sites.thumbnails(kind, site)
        assert {name: size(address) for name, address in thumbnails.items()} == VIEWPORTS
        assert sites.standing(kind, site) == (None, False)
    assert [sites.task(kind, site) for kind, site in left] == [{}] * len(left)


def shown(address: str) -> Path:
    return Path(urlsplit(address).path)


def test_pictures_that_were_replaced_are_removed_once_nobody_refers_to_them(sites: Sites, builder: Running) -> None:
    site = sites.new("instasite", preview="rebuilt")
    enqueue("instasite", site)
    old = sites.thumbnails("instasite", site)
    sites.rows("UPDATE instasites SET details = details - 'thumbnails' WHERE id = :site", site=site)
    sites.previews_of("instasite", site, "rebuilt-anew")
    before = sites.rows.one("SELECT clock_timestamp()")
    enqueue("instasite", site)
    until(lambda: sites.row("instasite", site)["details"].get("thumbnails"), "the new pictures")
    new = sites.row("instasite", site)["details"]["thumbnails"]
    assert not set(new.values()) & set(old.values())
    assert all(shown(address).exists() for address in (*old.values(), *new.values()))
    assert sites.rows.one(SOONEST) >= before + timedelta(hours=1), "since they were replaced"
    sites.go_on()
    until(lambda: not any(shown(address).exists() for address in old.values()), "the old ones to be removed")
    assert all(shown(address).exists() for address in new.values())


def test_what_crashes_and_deleted_sites_left_is_found_and_removed(sites: Sites, builder: Running, stack: Stack) -> None:
    site, gone = (sites.new("agency_website", preview=name) for name in ("swept", "deleted"))
    for one in (site, gone):
        enqueue("agency_website", one)
    kept, lost = (sites.thumbnails("agency_website", one) for one in (site, gone))
    folder = shown(kept["desktop"]).parent
    left = [folder / "desktop-0.png", folder / ".0.part"]
    for file in left:
        file.write_bytes(b"half")
    sites.rows("DELETE FROM agency_websites WHERE id = :site", site=gone)
    sites.rows("DELETE FROM worker_tasks WHERE role = 'tidy_thumbnails'")
    before = sites.rows.one("SELECT clock_timestamp()")
    told = sites.ended(find_old_thumbnails.delay().id)["result"]
    assert told["enqueued"] == 2
    assert sites.rows.one(SOONEST) >= before + timedelta(hours=1), "pages may show them still"
    sites.go_on()
    until(lambda: not any(file.exists() for file in (*left, *map(shown, lost.values()))), "the leftovers to be removed")
    assert all(shown(address).exists() for address in kept.values())
    assert sites.ended(find_old_thumbnails.delay().id)["result"] == told | {"enqueued": 0}


def test_a_tidying_names_no_more_than_its_arguments_hold(sites: Sites, builder: Running, stack: Stack) -> None:
    site = sites.new("instasite", preview="full")
    folder = stack.logs / "thumbnails" / "instasite" / str(site)
    folder.mkdir(parents=True)
    for n in range(MOST + 5):
        (folder / f"left-{n:04}.png").touch()
    enqueue("instasite", site)
    sites.thumbnails("instasite", site)
    tidying = "role = 'tidy_thumbnails' AND kwargs @> jsonb_build_object('kind', 'instasite', 'site_id', :site)"
    named = f"SELECT jsonb_array_length(kwargs -> 'names') FROM worker_tasks WHERE {tidying}"
    assert sites.rows.one(named, site=site) == MOST


def test_a_tidying_of_an_older_release_that_names_nothing_removes_nothing(sites: Sites, builder: Running) -> None:
    call = 'SELECT task_id FROM celeriac.enqueue(\'tidy_thumbnails\', \'{"kind": "instasite", "site_id": 1}\')'
    assert sites.ended(sites.rows.one(call))["result"] == {"removed": 0}


def test_a_site_that_is_rendered_is_left_to_its_build(sites: Sites, builder: Running, stack: Stack) -> None:
    """Its pictures lie there before its row refers to them."""
    site = sites.new("instasite", preview="beside")
    with sites.previews.held():
        enqueue("instasite", site)
        running_in(sites, "instasite", site)
        left = stack.logs / "thumbnails" / "instasite" / str(site) / "left.png"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"half")
        there = {("instasite", site): {"left.png"}}
        with Session(app.database.engine) as session:
            assert nobodys(session, there) == {}
    thumbnails = sites.thumbnails("instasite", site)
    sites.go_on()
    until(lambda: not left.exists(), "what was left to be removed")
    assert all(shown(address).exists() for address in thumbnails.values())


def test_a_site_that_is_enqueued_is_not_enqueued_again(sites: Sites, builder: Running) -> None:
    site = sites.new("instasite", preview="again")
    assert build_thumbnail.using(countdown=60).delay(kind="instasite", site_id=site, account_id=1).is_new
    assert sites.ended(enqueue_missing_thumbnails.delay().id)["result"]["instasites"] == 0
    sites.go_on()
    sites.thumbnails("instasite", site)


@pytest.mark.parametrize("kind", KINDS)
def test_others_see_that_a_build_is_in_progress_and_since_when(sites: Sites, builder: Running, kind: str) -> None:
    site = sites.new(kind, preview=f"progress-{kind}")
    with sites.previews.held():
        enqueue(kind, site)
        running_in(sites, kind, site)
        assert sites.standing(kind, site) == (True, True)
        assert sites.row(kind, site)["details"]["thumbnails"]["desktop"] is None
    sites.thumbnails(kind, site)
    assert sites.standing(kind, site) == (None, False)


def test_a_page_that_fails_is_tried_again_and_stays_in_progress_for_the_stale_fixer(
    sites: Sites, builder: Running
) -> None:
    site = sites.new("agency_website", preview="1?status=503")
    enqueue("agency_website", site)
    until(lambda: sites.task("agency_website", site)["retry_count"] == 1, "the failure")
    assert sites.standing("agency_website", site) == (True, True)
    sites.previews_of("agency_website", site, "better")
    sites.go_on()
    sites.thumbnails("agency_website", site)
    assert sites.standing("agency_website", site) == (None, False)


def test_a_process_killed_while_it_renders_leaves_no_half_thumbnail_and_no_browser(
    sites: Sites, builder: Running
) -> None:
    site = sites.new("instasite", preview="killed")
    with sites.previews.held():
        enqueue("instasite", site)
        victim = psutil.Process(running_in(sites, "instasite", site))
        browsers = victim.children(recursive=True)
        victim.kill()
        psutil.wait_procs(browsers, timeout=20)
    assert browsers
    assert not any(process.is_running() for process in browsers)
    until(lambda: sites.rows.one(EVENTS, kind="worker_lost", site=site) == 1, "the loss to be noticed")
    sites.go_on()
    assert set(sites.thumbnails("instasite", site)) == set(VIEWPORTS)
    assert sites.standing("instasite", site) == (None, False)


def rescued(sites: Sites, site: int) -> bool:
    """By this sweep or another: what was paused may have rows locked until Postgres ends its transaction."""
    repair.sweep(app, "rescue")
    return sites.rows.one(EVENTS, kind="rescue", site=site) == 1


def test_a_worker_paused_while_it_renders_changes_nothing_when_it_wakes(
    sites: Sites, builder: Running, stack: Stack
) -> None:
    site = sites.new("instasite", preview="paused")
    with ExitStack() as page:
        page.enter_context(sites.previews.held())
        enqueue("instasite", site)
        running_in(sites, "instasite", site)
        with paused(builder):
            page.close()
            silence(sites.rows)
            until(lambda: rescued(sites, site), "the rescue")
            sites.go_on()
            successor = stack.worker("enqueue_missing_thumbnails", "build_thumbnail", name="successor")
            sites.thumbnails("instasite", site)
            now = "thumbnail_build_in_progress = true, thumbnail_process_started_at = now()"
            sites.rows(f"UPDATE instasites SET {now}, details = '{{\"thumbnails\": {{}}}}' WHERE id = :site", site=site)
            before = sites.row("instasite", site)
    until(lambda: sites.rows.one(EVENTS, kind="late_finish", site=site) == 1, "the late finish to be refused")
    assert sites.row("instasite", site) == before
    successor.stop()


def test_a_site_without_a_page_for_a_preview_fails_at_once(sites: Sites, builder: Running) -> None:
    site = sites.new("instasite")
    sites.rows(
        """UPDATE instasites SET details = '{"previews": {"all": "file:///etc/passwd"}}' WHERE id = :id""", id=site
    )
    enqueue("instasite", site)
    until(lambda: sites.task("instasite", site)["status"] == "failed", "the failure")
    assert "no address of a page" in sites.task("instasite", site)["error_message"]
    assert sites.standing("instasite", site) == (None, False)


def test_an_instasites_build_leads_to_its_thumbnails_and_shares_their_lock(sites: Sites, builder: Running) -> None:
    site = sites.new("instasite", status="DRAFT")
    with Session(app.database.engine) as session, session.begin():
        template = Template(name="Bakery", duda_template_id=sandbox.TEMPLATES[0])
        session.get_one(Instasite, site).template = template
        session.get_one(Instasite, site).details = {}
    lock = sites.task_of(build.delay(instasite_id=site, account_id=1).id)["lock_key"]
    app.dispatch("instasite_build")
    until(lambda: sites.row("instasite", site)["status"] == "PUBLISHED", "the build")
    enqueue_missing_thumbnails.delay()
    until(lambda: "thumbnails" in sites.row("instasite", site)["details"], "the thumbnails")
    assert sites.task("instasite", site)["lock_key"] == lock
    assert sites.row("instasite", site)["details"]["duda_site_name"]


def test_without_a_browser_builds_wait_and_burn_no_attempt_until_there_is_one(
    sites: Sites, builder: Running, browser: Path
) -> None:
    site = sites.new("instasite", preview="waits")
    target = browser.readlink()
    browser.unlink()
    try:
        enqueue("instasite", site)
        until(lambda: sites.rows.one(EVENTS, kind="snooze", site=site) >= 4, "four looks in vain")
        assert (sites.task("instasite", site)["retry_count"], sites.standing("instasite", site)) == (0, (None, False))
    finally:
        browser.symlink_to(target)
    said = builder.printed().count("tasks wait for a browser")
    assert 1 <= said <= 3  # once a process; one of the first two was killed
    assert f"CHROMIUM_PATH='{browser}' is no program: install Debian's package chromium" in builder.printed()
    sites.thumbnails("instasite", site)
