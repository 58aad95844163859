"""A bulk of very many in a real browser: just those that were shown, what is skipped and why; one that is stopped."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from celeriac.dashboard import words
from celeriac.operate import steer
from tests.api.works import row, task
from tests.dashboard.site import Site
from tests.processes import until

FAILED = """
INSERT INTO celeriac.history (id, task_id, role, account, unique_key, status, priority, scheduled_for, args, kwargs,
    started_at, completed_at, retry_count, tries, max_rounds, losses, created_at, error_message)
SELECT nextval('celeriac.tasks_id_seq'), gen_random_uuid(), 'crawl', 'a' || i % 10, :prefix || i, 'failed', 0, now(),
    '[]', '{}', now(), now(), 3, 0, 1, 0, now(), 'HTTPError: 502'
FROM generate_series(1, :n) i
"""

#: Milliseconds that many tasks may take beside other work on the machine.
MANY = 60_000

ENDED = "SELECT state, asked, done, skipped FROM celeriac.bulk_actions"


def spaced(figure: int) -> str:
    """As pages have it."""
    return f"{figure:,}".replace(",", "\u202f")


def ask(page: Page) -> None:
    """The page with the question; the button is left."""
    page.goto("tasks?state=failed&role=crawl")
    page.get_by_role("link", name="Retry all matching…").click()
    page.get_by_label("Why").fill("the store answers again")


@pytest.mark.parametrize(
    ("many", "counted"),
    [(2_500, 1_000), pytest.param(25_000, 10_000, marks=pytest.mark.nightly("ten times as many batches"))],
)
def test_all_that_were_shown_are_retried_and_none_that_failed_since(
    site: Site, page: Page, monkeypatch: pytest.MonkeyPatch, many: int, counted: int
) -> None:
    """More than are counted."""
    monkeypatch.setattr(words, "CAP", counted)
    site.rows(FAILED, n=many, prefix="shown ")
    others = [task(site, "pending", "crawl", unique_key=f"shown {n}") for n in (1, 2, 3)]
    ask(page)
    expect(page.locator("h1")).to_have_text(f"Retry {spaced(counted)}+ tasks?")
    site.rows(FAILED, n=500, prefix="since ")
    page.get_by_role("button", name=re.compile("^Retry 1")).click()
    expect(page.locator(".lede")).to_contain_text("done", timeout=MANY)
    expect(page.locator(".lede")).to_contain_text("all tasks with role crawl, state failed")
    for figure, said in (("asked", spaced(many)), ("done", spaced(many - 3)), ("skipped", "3"), ("left", "0")):
        expect(page.locator(f"#{figure}")).to_have_text(said)
    skipped = page.locator("section:has(> #skips) tbody tr td")
    expect(skipped).to_contain_text([f"task {other} has its unique key" for other in others])
    trail = page.locator("section:has(> #trail) tbody tr")
    asked, over = trail.filter(has_text="bulk retry"), trail.filter(has_text=f'"done": {many - 3}')
    expect(asked).to_contain_text(re.compile('operate.*"role": "crawl".*the store answers again', re.DOTALL))
    expect(over).to_contain_text(f'"asked": {many}, "skipped": 3')
    failed = (
        "SELECT CAST(left(unique_key, 5) AS text), count(*) FROM celeriac.history WHERE status = 'failed' GROUP BY 1"
    )
    assert sorted(site.rows(failed)) == [("shown", 3), ("since", 500)]


def test_a_bulk_that_is_stopped_ends_with_the_batch_it_works_on(site: Site, page: Page) -> None:
    site.rows(FAILED, n=3_000, prefix="")
    middle = site.rows.one("SELECT id FROM celeriac.history ORDER BY id OFFSET 1500 LIMIT 1")
    with site.rows.engine.connect() as other:
        other.exec_driver_sql("BEGIN")
        other.exec_driver_sql(f"SELECT FROM celeriac.history WHERE id = {middle} FOR UPDATE")
        ask(page)
        page.get_by_role("button", name=re.compile("^Retry 3")).click()
        expect(page.locator(".notice")).to_contain_text("somebody's open transaction", timeout=MANY)
        page.get_by_text(re.compile("^Stop bulk .+…")).click()
        page.get_by_role("button", name=re.compile("^Stop bulk")).click()
        expect(page.locator(".told")).to_contain_text("stop")
        before = int(str(site.rows.one("SELECT done FROM celeriac.bulk_actions")))
        other.exec_driver_sql("ROLLBACK")
    expect(page.locator(".lede")).to_contain_text("stopped", timeout=MANY)
    until(lambda: site.rows("SELECT FROM celeriac.bulk_actions WHERE ended_at IS NOT NULL"), "the bulk to end")
    ((state, asked, done, _),) = site.rows(ENDED)
    assert (state, asked) == ("stopped", 3_000)
    assert before <= done <= before + steer.BATCH
    assert site.rows.one("SELECT count(*) FROM celeriac.history WHERE status = 'failed'") == 3_000 - done
    assert row(site, int(str(middle)), "status") == ("failed",)
