"""A button that was pressed says so until the answer comes, in a real browser."""

from __future__ import annotations

from playwright.sync_api import Page, Route, expect

from tests.dashboard.site import Site

SCHEDULE = """
INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, kwargs)
VALUES ('nightly', 'crawl', '@daily', '{"store_id": 7}')"""


TWICE = """async () => {
    const button = [...document.querySelectorAll("button")].find((one) => one.textContent === "Run nightly now")
    button.click()
    await new Promise((then) => setTimeout(then, 200))
    button.click()
    await new Promise((then) => setTimeout(then, 200))
    return [button.textContent, button.getAttribute("aria-busy")]
}"""


def test_what_runs_now_says_so_and_is_not_run_twice(site: Site, page: Page) -> None:
    site.rows(SCHEDULE)
    page.goto("schedules/nightly")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/run-schedule/nightly", hold)
    assert page.evaluate(TWICE) == ["Running nightly now …", "true"]
    (once,) = held
    once.continue_()
    expect(page.locator(".told")).to_contain_text("nightly was run")
    expect(page.get_by_role("button", name="Run nightly now")).not_to_have_attribute("aria-busy", "true")
    assert site.rows.one("SELECT count(*) FROM worker_tasks WHERE role = 'crawl'") == 1
