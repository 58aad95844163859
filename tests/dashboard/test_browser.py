"""The dashboard in a real browser: what one finds, reads and does there, with JavaScript and without."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from tests.api.works import row, task
from tests.dashboard.site import Site, looked, worker

OFF = {"java_script_enabled": False}


def test_a_button_does_what_it_says_though_the_page_has_changed(site: Site, page: Page) -> None:
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kwargs)
        VALUES ('nightly', 'crawl', '@daily', '{"store_id": 7}')""")
    page.goto("schedules/nightly")
    page.get_by_text("Switch off…").click()
    site.rows("UPDATE celeriac.scheduled_jobs SET enabled = false")
    page.get_by_role("button", name="Switch nightly on").click()
    expect(page.locator(".told")).to_have_text("nightly is switched on.")


@pytest.mark.parametrize("page", [OFF], indirect=True)
def test_without_javascript_one_filters_retries_and_cancels(site: Site, page: Page) -> None:
    failed, waiting = task(site, "failed", "crawl"), task(site, "pending", "crawl")
    page.goto("tasks")
    page.locator("#q").fill("state:failed role:crawl")
    page.locator("#q").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label(f"task {failed}", exact=True).check()
    page.get_by_role("button", name="Retry ticked tasks").click()
    expect(page.locator(".told")).to_have_text("1 task will run again.")
    page.goto(f"tasks/{waiting}")
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name=f"Cancel task {waiting}").click()
    expect(page.locator(".told")).to_have_text("It is cancelled.")
    expect(page.locator(".lede")).to_contain_text("cancelled")
    assert row(site, failed, "status") == ("pending",)


def test_back_leads_to_the_same_list(site: Site, page: Page) -> None:
    made = [task(site, "failed", "crawl") for _ in range(3)]
    task(site, "failed", "resync")
    page.goto("tasks")
    page.get_by_role("navigation", name="States").get_by_role("link", name=re.compile("failed")).click()
    page.locator("tbody").get_by_role("link", name="crawl").first.click()
    page.get_by_role("link", name=f"#{made[0]}").click()
    expect(page.locator("h1")).to_contain_text(f"Task {made[0]}")
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(3)
    assert page.url == f"{site.url}/tasks?role=crawl"


def test_by_keys_alone_a_failed_task_is_found_read_and_retried(site: Site, page: Page) -> None:
    failed = task(site, "failed", "crawl")
    page.goto("overview")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(f"{site.url}/tasks")
    page.keyboard.press("/")
    page.keyboard.type("p")
    expect(page.locator("#go")).to_have_value("p")
    page.keyboard.press("Backspace")
    page.keyboard.type(str(failed))
    page.keyboard.press("Enter")
    expect(page.locator(".lede")).to_contain_text("Failed: broken")
    page.get_by_role("button", name=f"Retry task {failed}").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".told")).to_have_text("It will run again.")
    expect(page.locator(".lede")).to_contain_text("pending")


#: Of the workers' dashboard: green below 50 %, yellow below 75, amber below 90, red from there.
COLOURS = {
    "ok": "rgb(26, 127, 100)", "warm": "rgb(181, 137, 0)", "high": "rgb(194, 65, 12)", "critical": "rgb(130, 7, 30)",
}  # fmt: skip
USED = {49: "ok", 50: "warm", 74: "warm", 75: "high", 89: "high", 90: "critical"}


@pytest.mark.parametrize("page", [{"color_scheme": "light"}], indirect=True)
def test_workers_and_what_they_use(site: Site, page: Page) -> None:
    for memory in USED:
        worker(site, f"w{memory}", memory=memory)
    worker(site, "late", ago=75)
    backing_off = {"is_backing_off": True, "backoff_reason": "Memory at 87.3% (threshold: 85%)"}
    worker(site, "tired", memory=87.3, resources=backing_off)
    running = [task(site, "running", "crawl") for _ in range(2)]
    site.rows("UPDATE celeriac.tickets SET worker_id = 'tired'")
    page.goto("workers")
    for memory, word in USED.items():
        memory_cell = page.locator(f"#worker-w{memory} .resource").first
        expect(memory_cell).to_contain_text(f"{memory} % {word}")
        expect(memory_cell.locator(f"rect.{word}")).to_have_css("fill", COLOURS[word])
    tired = page.locator("#worker-tired")
    expect(tired).to_contain_text(f"2/3 tasks #{running[0]}, #{running[1]}")
    expect(tired.locator(".badge")).to_have_text("Backing Off")
    expect(tired.locator(".badge")).to_have_css("background-color", COLOURS["high"])
    expect(tired).to_contain_text("Memory at 87.3% (threshold: 85%)")
    expect(page.locator("#worker-w49 .state")).to_have_text("● Active")
    expect(page.locator("#worker-late .state")).to_contain_text("◌ Late 1 m")
    site.rows("UPDATE celeriac.tickets SET started_at = now() - interval '10 minutes'")
    site.rows("""UPDATE celeriac.workers SET resources = resources || '{"is_backing_off": false}'""")
    expect(tired.locator(".badge")).to_have_count(0, timeout=10_000)
    expect(tired).to_contain_text(f"2/3 tasks #{running[0]}, #{running[1]}")


def test_a_theme_is_kept_by_the_server(site: Site, page: Page) -> None:
    page.goto("tasks?state=failed")
    page.locator(".menu summary").click()
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Keep").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page).to_have_url(f"{site.url}/tasks?state=failed")
    expect(page.locator("html")).to_have_css("background-color", "rgb(13, 17, 23)")


def test_a_bulk_goes_on_while_one_looks(site: Site, page: Page) -> None:
    failed = [task(site, "failed", "crawl") for _ in range(3)]
    page.goto("tasks?state=failed")
    page.get_by_role("link", name="Retry all matching…").click()
    expect(page.locator("h1")).to_have_text("Retry 3 tasks?")
    later = task(site, "failed", "crawl")
    page.get_by_role("button", name="Retry 3 tasks").click()
    expect(page.locator(".lede")).to_contain_text("done", timeout=10_000)
    expect(page.locator("#done")).to_have_text("3")
    assert [row(site, one, "status") for one in (*failed, later)] == [("pending",)] * 3 + [("failed",)]


def test_the_task_queue_summary_is_what_there_is(site: Site, page: Page) -> None:
    for status, n in (("pending", 3), ("running", 2), ("completed", 4), ("failed", 1)):
        for _ in range(n):
            task(site, status, "crawl")
    page.goto("")
    expect(page.locator("#summary")).to_have_text("Task Queue Summary")
    for status, n in (("pending", "3"), ("running", "2"), ("completed", "4"), ("failed", "1")):
        expect(page.locator(f"div:has(> #n-{status}) > dt")).to_have_text(status, ignore_case=True)
        expect(page.locator(f"#n-{status} > :first-child")).to_have_text(n)
    task(site, "failed", "crawl")
    expect(page.locator("#n-failed > :first-child")).to_have_text("2", timeout=10_000)


def test_workers_are_counted_for_one_four_and_eight_hours(site: Site, page: Page) -> None:
    """As 500 tasks wait, and a worker does 50 an hour."""
    site.rows("INSERT INTO worker_tasks (task_id, role) SELECT i, 'crawl' FROM generate_series(1, 500) i")
    site.rows("INSERT INTO celeriac.batchers (role, cursor, seconds_per_task) VALUES ('crawl', '', 72)")
    page.goto("capacity")
    cells = page.locator("#role-crawl td").all_inner_texts()
    assert (cells[0], cells[-3:]) == ("500", ["10", "3", "2"])


def test_the_key_metrics_of_a_role_are_on_its_page(site: Site, page: Page) -> None:
    """Queue depth, failed rate, retry success rate, priority distribution, average wait."""
    for priority in (5, 15, 15):
        task(site, "pending", "crawl", priority=priority)
    failed, done, again = (task(site, status, "crawl") for status in ("failed", "completed", "completed"))
    site.rows("UPDATE celeriac.history SET started_at = created_at + interval '4 seconds', completed_at = now()")
    site.rows("UPDATE celeriac.history SET retry_count = CASE WHEN id = :id THEN 1 ELSE 0 END", id=again)
    page.goto("roles/crawl")
    figures = page.locator("dl.figures")
    expect(figures).to_contain_text("Wait, mean4 s")
    expect(figures).to_contain_text("Failed33.3 %")
    expect(figures).to_contain_text("Retry success100.0 %")
    expect(page.locator("section:has(> #waiting) dt").first).to_have_text("3")
    by_priority = page.locator("section:has(> #priorities) dl")
    expect(by_priority).to_have_text(re.compile(r"0 to 9\s*1\s*10 to 19\s*2"))
    assert failed != done


def test_what_should_alert_does(site: Site, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth over its bound, over 10 % failed, over an hour in work, a schedule that missed its time: while it is so."""
    monkeypatch.setattr(site.app, "settings", replace(site.app.settings, alert_queue_depth=2))
    worker(site)
    for status, n in (("pending", 3), ("failed", 21)):
        for _ in range(n):
            task(site, status, "crawl")
    task(site, "running", "resync")
    site.rows("UPDATE worker_tasks SET started_at = now() - interval '2 hours' WHERE status = 'running'")
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, next_run_at)
        VALUES ('nightly', 'crawl', '@daily', now() - interval '6 minutes')""")
    looked(site)
    page.goto("overview")
    page.locator("#more-rules > summary").click()
    for name, subject in (
        ("queue_depth", "crawl"), ("failed_rate", "crawl"), ("long_running", "resync"), ("missed_schedule", "nightly"),
    ):  # fmt: skip
        expect(page.locator(f"#alert-{name}-{subject}")).to_be_visible()
    expect(page.locator("h1")).to_contain_text("things more")
    site.rows("DELETE FROM celeriac.scheduled_jobs")
    page.reload()
    expect(page.locator("#alert-queue_depth-crawl")).to_have_count(1)
    expect(page.locator("#alert-missed_schedule-nightly")).to_have_count(0)


def test_one_boosts_a_task_and_runs_a_schedule_now(site: Site, page: Page) -> None:
    number = task(site, "pending", "crawl", priority=90)
    page.goto(f"tasks/{number}")
    page.get_by_role("button", name=re.compile("[Bb]oost")).click()
    expect(page.locator(".told")).to_have_text("It was moved up.")
    assert row(site, number, "priority") == (100,)
    site.rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kwargs)
        VALUES ('nightly', 'crawl', '@daily', '{"store_id": 7}')""")
    page.goto("schedules/nightly")
    page.get_by_role("button", name="Run nightly now").click()
    expect(page.locator(".told")).to_contain_text("nightly was run")


@pytest.mark.parametrize("page", [OFF], indirect=True)
def test_without_javascript_a_schedule_is_made_once_it_is_right(site: Site, page: Page) -> None:
    page.context.add_cookies([{"name": "celeriac", "value": site.session("admin"), "url": site.url}])
    page.goto("schedules")
    page.get_by_role("link", name="New schedule…").click()
    page.get_by_label("Name").fill("nightly")
    page.get_by_label("Role").fill("crawl")
    page.get_by_label("When").fill("30 3 * * *")
    page.get_by_label("Arguments").fill('{"store_id": 7}')
    page.get_by_role("button", name="Show the next five").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    assert site.rows("SELECT * FROM celeriac.scheduled_jobs") == []
    page.get_by_role("button", name="Make it").click()
    expect(page.locator(".told")).to_have_text("nightly is made.")


def test_what_is_very_long_or_written_otherwise_is_shown_as_it_is(site: Site, page: Page) -> None:
    """A megabyte of arguments, 64-bit integers, emoji, writing from right to left."""
    number = task(site, "failed", "crawl", account="متجر 🛒", kwargs='{"n": 9223372036854775807, "note": "🥕 שלום"}')
    site.rows("UPDATE celeriac.history SET args = jsonb_build_array(repeat('x', 1000000)) WHERE id = :id", id=number)
    page.goto(f"tasks/{number}")
    for said in ("متجر 🛒", "9223372036854775807", "🥕 שלום"):
        expect(page.locator("main")).to_contain_text(said)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_on_the_day_the_clocks_change_all_is_told_in_one_zone(site: Site, page: Page) -> None:
    """Half past two comes twice: the offset says which."""
    page.context.add_cookies([{"name": "celeriac-zone", "value": "Europe%2FBerlin", "url": site.url}])
    for at, zone in (("2025-10-26T00:30:00+00", "CEST"), ("2025-10-26T01:30:00+00", "CET")):
        number = task(site, "failed", "crawl")
        site.rows("UPDATE celeriac.history SET started_at = :at WHERE id = :id", at=at, id=number)
        page.goto(f"tasks/{number}")
        shown = page.locator(f'time[datetime^="{at[:19]}"]').first
        expect(shown).to_have_text("26 Oct 2025 02:30:00")
        expect(shown).to_have_attribute("title", f"2025-10-26 02:30:00 {zone}")
        titles = page.locator("#live time[title]").evaluate_all("all => all.map(one => one.title.split(' ').pop())")
        assert set(titles) <= {"CET", "CEST"}
