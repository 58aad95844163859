"""What is open in a browser stays current, and what the reader did there stays."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.api.works import task
from tests.dashboard.site import Site


def state(page: Page, number: int) -> Locator:
    return page.locator(f"#task-{number} .state")


BREAK = """
UPDATE worker_tasks SET status = 'failed', completed_at = now(), error_message = 'broken' WHERE id = :id
"""


def test_what_is_open_stays_current_and_what_the_reader_did_stays(site: Site, page: Page) -> None:
    first, second = task(site, "running", "crawl"), task(site, "pending", "crawl")
    page.goto("tasks")
    expect(page.locator("#light")).to_have_text("live")
    page.locator(f"#task-{second} input").check()
    page.locator(".filters summary").click()
    page.locator("#q").press_sequentially("state:fai")
    site.rows(BREAK, id=first)
    newer = task(site, "pending", "crawl")
    expect(state(page, first)).to_have_text(re.compile("failed"), timeout=10_000)
    expect(page.locator(f"#task-{first}")).to_contain_text("broken")
    expect(page.locator("#newer")).to_have_text("1 newer, show")
    expect(page.locator("#said")).to_have_text("1 more failed")
    expect(page.locator(f"#task-{newer}")).to_have_count(0)
    expect(page.locator(f"#task-{second} input")).to_be_checked()
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("led")
    expect(page.locator("#q")).to_have_value("state:failed")
    expect(page.locator(".filters")).to_have_attribute("open", "")
    assert [row.get_attribute("id") for row in page.locator("tbody tr").all()] == [f"task-{second}", f"task-{first}"]
    page.locator("#newer a").click()
    expect(page.locator(f"#task-{newer}")).to_be_visible()


def test_paused_means_no_request(site: Site, page: Page) -> None:
    page.clock.install()
    page.goto("tasks")
    page.keyboard.press("p")
    expect(page.locator("#light")).to_have_text("paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.fast_forward(20_000)
    assert asked == []
    with page.expect_response(re.compile("/admin/tasks$")):
        page.keyboard.press("p")
    expect(page.locator("#light")).to_have_text("live")


def test_while_the_server_is_away_the_page_says_since_when_and_keeps_what_it_has(site: Site, browser: Browser) -> None:
    """What the browser says of it on its console is meant."""
    number = task(site, "running", "crawl")
    with browser.new_context(base_url=site.url + "/") as context:
        context.add_cookies([{"name": "celeriac", "value": site.session("operate"), "url": site.url}])
        page = context.new_page()
        page.goto("tasks")
        page.locator(f"#task-{number} input").check()
        context.set_offline(True)
        expect(page.locator("#light")).to_have_text(re.compile("stale .+"), timeout=15_000)
        expect(page.locator("body")).to_have_class("stale")
        site.rows(BREAK, id=number)
        context.set_offline(False)
        page.keyboard.press(".")
        expect(page.locator("#light")).to_have_text("live")
        expect(state(page, number)).to_have_text(re.compile("failed"))
        expect(page.locator(f"#task-{number} input")).to_be_checked()


def test_a_cold_browser_gets_little_and_seldom(site: Site, page: Page) -> None:
    """The first page with what belongs to it, on the wire: 40 kB in 8 requests; the next one 15 kB."""
    for n in range(50):
        task(site, "failed", "crawl", lock_key=f"store:{n}")
    answers: dict[str, Any] = {}
    page.on("response", lambda answer: answers.setdefault(answer.url, answer))
    known: set[str] = set()
    for path, most, requests in (("overview", 40_000, 8), ("tasks", 15_000, 2)):
        page.goto(path)
        expect(page.locator("#light")).to_have_text("live")
        new = [answer for url, answer in answers.items() if url not in known]
        weight = sum(int(answer.header_value("content-length") or 0) for answer in new)
        assert 0 < weight <= most, path
        assert 0 < len(new) <= requests, path
        known = set(answers)


def test_ten_tabs_of_one_browser_are_all_live(site: Site, page: Page) -> None:
    number = task(site, "running", "crawl")
    tabs = [page, *(page.context.new_page() for _ in range(9))]
    for tab in tabs:
        tab.goto("tasks")
    site.rows(BREAK, id=number)
    for tab in tabs:
        expect(state(tab, number)).to_have_text(re.compile("failed"), timeout=10_000)
        tab.close()


def test_a_hidden_tab_asks_nothing_until_it_is_seen(site: Site, page: Page) -> None:
    page.add_init_script(
        "Object.defineProperty(document, 'hidden', {get: () => window.away ?? false, configurable: true})"
    )
    page.clock.install()
    page.goto("tasks")
    expect(page.locator("#light")).to_have_text("live")
    page.evaluate("window.away = true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.fast_forward(20_000)
    assert asked == []
    with page.expect_response(re.compile("/admin/tasks$")):
        page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_what_is_committed_is_seen_with_the_next_look_two_seconds_later(site: Site, page: Page) -> None:
    number = task(site, "pending", "crawl", priority=1)
    page.clock.install()
    page.goto(f"tasks/{number}")
    expect(page.locator("#light")).to_have_text("live")
    for priority in (7, 8, 9):
        site.rows("UPDATE worker_tasks SET priority = :p WHERE id = :id", p=priority, id=number)
        with page.expect_response(re.compile(f"/admin/tasks/{number}$")):
            page.clock.fast_forward(2_000)
        expect(page.locator("dt:text-is('Priority') + dd")).to_have_text(re.compile(rf"^{priority}\b"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("looks", [6, pytest.param(30, marks=pytest.mark.nightly("a minute of the browser's"))])
def test_while_a_hundred_rows_change_a_second_what_the_reader_has_stays(site: Site, page: Page, looks: int) -> None:
    """Every third look finds a task more."""
    ids = [task(site, "pending", "crawl") for _ in range(60)]
    page.clock.install()
    page.goto("tasks")
    expect(page.locator("#light")).to_have_text("live")
    page.locator(".filters summary").click()
    page.locator(f"#task-{ids[30]} input").check()
    page.locator("#q").fill("state:failed")
    page.evaluate("document.getElementById('q').setSelectionRange(3, 3); window.scrollTo(0, 300)")
    kept = """[window.scrollY, document.activeElement.id, document.getElementById('q').selectionStart,
        document.getElementById('q').value, document.querySelector('.filters').open,
        [...document.querySelectorAll('tbody input:checked')].map(box => box.value),
        [...document.querySelectorAll('tbody tr')].map(row => row.id)]"""
    before = page.evaluate(kept)
    for look in range(looks):
        if look % 3 == 0:
            task(site, "pending", "crawl")
        for _ in range(4):
            site.rows("UPDATE worker_tasks SET priority = (priority + 7) % 100 WHERE id = ANY (:ids)", ids=ids)
        with page.expect_response(re.compile("/admin/tasks$")):
            page.clock.fast_forward(2_000)
        priority = str((look + 1) * 28 % 100)
        expect(page.locator(f"#task-{ids[-1]} td.figure").first).to_have_text(priority)
        assert page.evaluate(kept) == before, look
    expect(page.locator("#newer")).to_have_text(f"{looks // 3} newer, show")
