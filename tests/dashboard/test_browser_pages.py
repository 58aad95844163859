"""Each page in a real browser: with data, without, while Postgres is slow, without scripts, from another site."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from celeriac.dashboard import reading
from celeriac.dashboard.templates import TABS
from tests.api.works import row, task
from tests.dashboard.pages import ONE, PAGES, filled
from tests.dashboard.site import Site
from tests.processes import until

OFF = {"java_script_enabled": False}

#: Pages that stand still: what they ask is asked of what there was.
STILL = "tasks/matching"


def looks_right(page: Page, path: str) -> None:
    """One heading, a title, alive, and nothing that others wrote has become markup."""
    expect(page.locator("h1"), path).to_have_count(1)
    expect(page, path).to_have_title(re.compile(".+ · Celeriac$"))
    assert page.locator("main :is(img, script, iframe)").count() == 0, path
    if not path.startswith(STILL):
        expect(page.locator("#light"), path).to_have_text("live")


@pytest.mark.parametrize("has_data", [True, False])
def test_each_page_opens_from_the_navigation_and_by_its_address(
    site: Site, page: Page, request: pytest.FixtureRequest, has_data: bool
) -> None:
    ids: dict[str, int] = request.getfixturevalue("furnished") if has_data else {}
    page.on("dialog", lambda dialog: pytest.fail(f"{page.url} runs what others wrote: {dialog.message}"))
    page.goto("")
    for tab, pages in TABS.items():
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=tab, exact=True).click()
        for path, word, _ in pages:
            if len(pages) > 1:
                page.get_by_role("navigation", name=tab).get_by_role("link", name=word, exact=True).click()
            expect(page).to_have_url(f"{site.url}/{path}")
            looks_right(page, path)
    for path in (filled(path, ids) for path in ONE if has_data):
        page.goto(path)
        looks_right(page, path)


def test_a_page_whose_figures_take_too_long_is_a_page_that_says_so(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TIMEOUT", 0.25)
    for path, (_, tables) in PAGES.items():
        if tables:
            with site.locked(*tables):
                page.goto(path)
            expect(page.locator(".stopped").first, path).to_contain_text("was stopped. Narrow it by role or time.")
            looks_right(page, path)


@pytest.mark.parametrize("page", [OFF], indirect=True)
def test_without_javascript_every_page_reads_and_a_list_goes_on(
    site: Site, page: Page, furnished: dict[str, int]
) -> None:
    made = [task(site, "failed", "resync") for _ in range(60)]
    for path in (*PAGES, *(filled(path, furnished) for path in ONE)):
        page.goto(path)
        expect(page.locator("h1"), path).to_have_count(1)
        expect(page.locator("#light"), path).to_be_hidden()
    page.goto("tasks?state=failed&role=resync")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.locator(f"#task-{made[0]}")).to_be_visible()
    page.get_by_role("link", name="Newest").click()
    expect(page.locator("tbody tr").first).to_have_attribute("id", f"task-{made[-1]}")


def test_a_list_is_the_same_to_whoever_comes_back_and_to_whom_its_address_is_given(
    site: Site, page: Page, browser: Browser
) -> None:
    made = [task(site, "failed", "crawl") for _ in range(60)]
    task(site, "failed", "resync")
    page.goto("tasks?state=failed&role=crawl&colour=red")
    expect(page.locator(".notice")).to_contain_text("colour: no such filter here")
    page.goto("tasks?state=failed&role=crawl")
    rows = page.locator("tbody tr")
    shown = rows.evaluate_all("rows => rows.map(row => row.id)")
    assert shown == [f"task-{number}" for number in made[:9:-1]]
    page.locator(f"#{shown[2]} input").check()
    link = page.locator(f"#{shown[30]} th a")
    link.scroll_into_view_if_needed()
    scrolled = page.evaluate("window.scrollY")
    assert scrolled > 0
    link.click()
    expect(page.locator("h1")).to_contain_text("Task")
    page.go_back()
    expect(rows).to_have_count(50)
    assert rows.evaluate_all("rows => rows.map(row => row.id)") == shown
    until(lambda: page.evaluate("window.scrollY") == scrolled, "the place one had scrolled to")
    expect(page.locator("tbody input:checked")).to_have_count(0)
    with browser.new_context() as another:
        another.add_cookies([{"name": "celeriac", "value": site.session("read"), "url": site.url}])
        theirs = another.new_page()
        theirs.goto(page.url)
        assert theirs.locator("tbody tr").evaluate_all("rows => rows.map(row => row.id)") == shown


def test_another_site_neither_frames_a_page_nor_sends_its_forms(site: Site, browser: Browser) -> None:
    """What the browser says of it on its console is meant."""
    failed = task(site, "failed", "crawl")
    with browser.new_context() as context:
        context.add_cookies([{"name": "celeriac", "value": site.session("admin"), "url": site.url}])
        page = context.new_page()
        page.set_content(f"""<iframe src="{site.url}/tasks"></iframe>
            <form method="post" action="{site.url}/tasks/{failed}/retry"><button>Win a prize</button></form>""")
        until(lambda: page.frames[1].url.startswith("chrome-error:"), "the frame to be refused")
        with page.expect_response(re.compile("/retry$")) as answer:
            page.get_by_role("button").click()
        assert answer.value.status == 403
    assert row(site, failed, "status") == ("failed",)


def test_a_retry_that_collides_says_with_which_task(site: Site, page: Page) -> None:
    failed = task(site, "failed", "crawl", unique_key="store 7")
    other = task(site, "pending", "crawl", unique_key="store 7")
    page.goto(f"tasks/{failed}")
    page.get_by_role("button", name=f"Retry task {failed}").click()
    expect(page.locator(".told")).to_contain_text(f"task {other} has its unique key")
    expect(page.locator(".lede")).to_contain_text("failed")
