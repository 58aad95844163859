"""The first screen, in a browser: a busy system whole, and on a phone the worst finding."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.api.works import task
from tests.dashboard.site import Site, looked, worker

WIDE, PHONE = {"viewport": {"width": 1280, "height": 800}}, {"viewport": {"width": 360, "height": 640}}


def trouble(site: Site) -> None:
    """Six things wrong, of six rules, some of several subjects, beside an hour of work of three roles."""
    looked(site)
    for n in range(6):
        worker(site, f"store-{n}:12", ago=900 if n < 3 else 0)
    for role in ("crawl", *["resync"] * 40):
        task(site, "completed" if role == "crawl" else "failed", role)
    running = task(site, "running", "resync")
    site.rows("UPDATE worker_tasks SET started_at = now() - interval '2 hours' WHERE id = :id", id=running)
    for role in ("instasite_build", "product_resync", "resync"):
        task(site, "pending", role)
    ids = [task(site, "pending", "crawl", account=f"shop-{n % 4}") for n in range(12)]
    site.rows(
        """INSERT INTO celeriac.task_events (task, role, kind, from_status, to_status, why)
        SELECT id, 'crawl', 'retry', 'running', 'pending',
            'HTTPError: 503 Service Unavailable for url: https://partner.example/v2/stores/17'
        FROM unnest(CAST(:ids AS bigint[])) id""",
        ids=ids,
    )
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, next_run_at)
        VALUES ('nightly', 'crawl', '@daily', now() - interval '6 minutes')""")
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed, waits, runs)
        SELECT r, until - i * interval '1 minute', 100 + i % 70, 40 + i % 50, i % 30, ARRAY[1, 2], ARRAY[0, 3]
        FROM celeriac.minutes_until, generate_series(1, 60) i, unnest(ARRAY['crawl', 'resync', 'product_resync']) r""")


def bottom(part: Locator) -> float:
    box = part.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_a_busy_system_is_on_one_screen(site: Site, page: Page) -> None:
    trouble(site)
    page.goto("overview")
    found = page.locator("ul.alerts > li")
    expect(found.nth(0)).to_have_attribute("id", "alert-no_worker-instasite_build")
    expect(found.nth(1)).to_have_attribute("id", "alert-fails_now-crawl")
    expect(page.locator("#more-no_worker")).to_contain_text("2 more of the same: ")
    expect(page.locator("#more-rules > summary")).to_contain_text("3 things more, of less damage: ")
    for part in ("ul.alerts", "dl.figures", "section:has(> #flow) svg.chart", "section:has(> #roles)"):
        assert bottom(page.locator(part).first) <= 800, part
    page.locator("#more-rules > summary").click()
    expect(page.locator("#alert-long_running-resync")).to_be_visible()


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_on_a_phone_the_worst_finding_and_its_cure_are_seen_without_scrolling(site: Site, page: Page) -> None:
    trouble(site)
    page.goto("overview")
    worst = page.locator("#alert-no_worker-instasite_build > small")
    expect(worst).to_contain_text("celery -A ")
    assert bottom(worst) <= 640


#: What stands over an edge of its picture.
CUT_OFF = """svgs => svgs.flatMap(svg => [...svg.querySelectorAll('text')].filter(one => {
    const box = one.getBBox();
    return box.x < 0 || box.x + box.width > svg.viewBox.baseVal.width;
}).map(one => one.textContent))"""


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_no_text_of_a_chart_is_cut_off_however_large_its_figures(site: Site, page: Page) -> None:
    task(site, "completed", "crawl")
    site.rows("UPDATE celeriac.minutes_until SET until = date_trunc('minute', now())")
    site.rows("""INSERT INTO celeriac.minutes (role, minute, enqueued, completed, failed)
        SELECT 'crawl', until - i * interval '1 minute', 52017365 / i ^ 4, 0, 0
        FROM celeriac.minutes_until, generate_series(1, 59) i""")
    site.rows("INSERT INTO worker_tasks (task_id, role) SELECT i, 'crawl' FROM generate_series(1, 20000) i")
    site.rows("INSERT INTO celeriac.batchers (role, cursor, seconds_per_task) VALUES ('crawl', '', 36)")
    for path in ("overview", "overview?span=7d", "roles/crawl", "capacity?role=crawl&workers=1"):
        page.goto(path)
        charts = page.locator("svg.chart")
        expect(charts, path).not_to_have_count(0)
        assert charts.evaluate_all(CUT_OFF) == [], path
