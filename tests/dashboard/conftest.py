"""A dashboard served in this process; each test has a database of its own, which the server looks at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from celeriac.dashboard import reading
from tasks.chromium import FLAGS
from tests.conftest import Servers
from tests.dashboard.site import Served, Site, furnish


@pytest.fixture(scope="session")
def served(servers: Servers) -> Iterator[Served]:
    served = Served(servers.redis_url)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def site(served: Served, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """What is read is told to nobody else, as tests are quicker than it would be forgotten."""
    monkeypatch.setattr(reading, "SERVES", -1.0)
    monkeypatch.setattr(reading, "TIMES", 0.0)
    site = Site(served, database_url)
    yield site
    site.close()


@pytest.fixture
def furnished(site: Site) -> dict[str, int]:
    return furnish(site)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *FLAGS])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Signed in as an operator. What a page writes to the console, or throws, fails the test."""
    options = {"viewport": {"width": 1400, "height": 900}} | getattr(request, "param", {})
    with browser.new_context(base_url=site.url + "/", **options) as context:
        context.add_cookies([{"name": "celeriac", "value": site.tokens["operate"], "url": site.url}])
        page, said = context.new_page(), list[str]()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        yield page
        assert said == []
