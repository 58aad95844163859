"""Who gets the slots, and who waits for how long, as a role's page and its decisions say it in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.api.works import row, task
from tests.dashboard.site import Site


@pytest.mark.parametrize("much_has", [600, pytest.param(10_000, marks=pytest.mark.nightly("half a minute of inserts"))])
def test_an_account_with_little_is_not_behind_one_with_much_and_the_decision_says_so(
    site: Site, page: Page, much_has: int
) -> None:
    site.rows(
        "INSERT INTO worker_tasks (task_id, role, account) SELECT i, 'crawl', 'much' FROM generate_series(1, :n) i",
        n=much_has,
    )
    while site.app.dispatch("crawl"):
        pass
    page.goto("roles/crawl")
    much, little = (page.locator(f"#share-{account} .figure") for account in ("much", "little"))
    expect(much).to_have_text(["500+", "60", "60.0", "1.0", "–", "0"])
    number = task(site, "pending", "crawl", account="little")
    site.rows("""UPDATE worker_tasks SET status = 'completed', completed_at = now()
        WHERE id IN (SELECT id FROM worker_tasks WHERE status = 'claimed' LIMIT 2)""")
    expect(little).to_have_text(["1", "0", "1.0", "1.0", "–", re.compile(r"^(\d+|–)$")], timeout=10_000)
    expect(page.locator("section:has(> #shares)")).to_contain_text("little lacks most: it holds 0, 1.0 would be fair")
    assert site.app.dispatch("crawl") == 2
    assert row(site, number, "status") == ("claimed",)
    expect(little).to_have_text(["0", "1", "1.0", "1.0", "–", re.compile(r"^(\d+|–)$")], timeout=10_000)
    expect(much).to_have_text(["500+", "59", "59.0", "1.0", "–", re.compile(r"^(\d+|–)$")])
    expect(page.locator("#waited")).to_contain_text("No account that holds nothing has waited a round")
    expect(page.locator("#waited")).to_contain_text("1 is the bound")
    decision = site.rows.one("SELECT id FROM celeriac.passes WHERE given ? 'little'")
    page.locator(f"#pass-{decision} th a").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="much")).to_contain_text("much got 1, its share of what was free")
    expect(rows.filter(has_text="little")).to_contain_text("little got 1: all it had waiting")
    expect(page.locator("#replay")).to_contain_text("the answer is the same")


def test_an_account_that_waits_while_another_gets_more_has_waited_so_many_rounds(site: Site, page: Page) -> None:
    """As a record says it that no pass should leave behind."""
    for given in (1, 2):
        site.rows(
            """INSERT INTO celeriac.passes (role, by, free, claimants, given, took_ms) VALUES ('crawl', 'b', 3,
                '[{"account": "a", "waiting": 9, "holding": 5}, {"account": "b", "waiting": 1}]',
                jsonb_build_object('a', CAST(:n AS integer)), 1)""", n=given,
        )  # fmt: skip
    page.goto("roles/crawl")
    expect(page.locator("#waited")).to_have_text(
        "An account that holds nothing has waited 3 rounds, by the last passes; 1 is the bound."
    )
