"""The dashboard in a real browser while Redis or Postgres is away, and once it is back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from celeriac import local
from tests.dashboard.asked import why
from tests.dashboard.relay import Relay
from tests.dashboard.stack import SOON, Stack
from tests.processes import until


@pytest.fixture
def postgres(database_url: str) -> Iterator[Relay]:
    """The way to the test's database: a server of the test's own would take longer to make than the test itself."""
    relay = Relay(database_url)
    relay.start()
    yield relay
    relay.close()


@pytest.fixture
def own(postgres: Relay, valkey: local.ValkeyServer, tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(postgres.url, valkey.url, tmp_path)
    with stack.ends:
        yield stack


@pytest.fixture
def page(own: Stack, browser: Browser) -> Iterator[Page]:
    """What the browser says of servers that are away is meant."""
    own.serve()
    with browser.new_context(base_url=f"{own.url}/admin/") as context:
        context.add_cookies([{"name": "celeriac", "value": own.api.session(), "url": own.url}])
        yield context.new_page()


def test_without_redis_a_banner_says_so_and_tasks_are_listed(
    own: Stack, page: Page, valkey: local.ValkeyServer
) -> None:
    before = own.app.tasks["plain"].delay().row_id
    page.goto("tasks")
    banner = page.locator("#redis-away")
    expect(page.locator(f"#task-{before}")).to_be_visible()
    expect(banner).to_have_count(0)
    valkey.stop()
    expect(banner).to_contain_text("Work goes on; starts are delayed.", timeout=SOON)
    after = own.app.tasks["plain"].delay().row_id
    page.locator("#newer a").click()
    expect(page.locator(f"#task-{after} .state")).to_contain_text("pending")
    page.goto("system")
    expect(page.locator("section:has(> #redis)")).to_contain_text("It does not answer")
    valkey.start()
    expect(banner).to_have_count(0, timeout=SOON)
    expect(page.locator("section:has(> #redis)")).to_contain_text("It answers")


def test_redis_that_is_away_is_why_a_task_waits(own: Stack, page: Page, valkey: local.ValkeyServer) -> None:
    task = own.app.tasks["plain"].delay().row_id
    valkey.stop()
    assert why(own, page, task) == "redis_away"
    valkey.start()
    own.worker("plain")
    until(lambda: own.status(task) == "completed", "it to run")


def test_without_postgres_what_was_read_stays_with_its_age_and_a_new_page_says_so(
    own: Stack, page: Page, postgres: Relay
) -> None:
    task = own.app.tasks["plain"].delay().row_id
    page.goto("tasks")
    page.locator(f"#task-{task} input").check()
    postgres.stop()
    expect(page.locator("#light")).to_have_text(re.compile("stale .+ s"), timeout=SOON)
    expect(page.locator("body")).to_have_class("stale")
    expect(page.locator(f"#task-{task}")).to_be_visible()
    retry = page.get_by_role("button", name="Retry ticked tasks")
    expect(retry).to_be_disabled()
    expect(retry).to_have_attribute("title", "There is no answer just now: nothing can be changed")
    fresh = page.context.new_page()
    answer = fresh.goto("workers")
    assert answer is not None
    assert answer.status == 503
    expect(fresh.locator("main")).to_contain_text("Postgres does not answer")
    postgres.start()
    expect(page.locator("#light")).to_have_text("live", timeout=2 * SOON)
    expect(page.locator("body")).not_to_have_class("stale")
    expect(page.locator(f"#task-{task} input")).to_be_checked()
    expect(retry).to_be_enabled()
    expect(retry).not_to_have_attribute("title", re.compile("."))
