"""A dashboard served in this process; each test has a database of its own, which the server looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from celeriac.dashboard import reading
from tasks.chromium import FLAGS
from tests.conftest import Servers, Stock
from tests.dashboard.site import Served, Site, furnish
from tests.dashboard.stack import Stack
from tests.matrix.pooled import through


@pytest.fixture(scope="session")
def served(servers: Servers) -> Iterator[Served]:
    served = Served(servers.redis_url)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def site(served: Served, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    forgetful(monkeypatch)
    site = Site(served, database_url)
    yield site
    site.close()


def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is told to nobody else, as tests are quicker than it would be forgotten."""
    monkeypatch.setattr(reading, "SERVES", -1.0)
    monkeypatch.setattr(reading, "TIMES", 0.0)


@pytest.fixture(scope="module")
def of_module(served: Served, stock: Stock) -> Iterator[Site]:
    with stock.taken() as clean, closing(Site(served, through(clean.url))) as site:
        yield site


@pytest.fixture(scope="module")
def furnished_of_module(served: Served, stock: Stock) -> Iterator[Site]:
    with stock.taken() as clean, closing(Site(served, through(clean.url))) as site:
        site.ids = furnish(site)
        yield site


@pytest.fixture
def still(of_module: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """One site for all tests of a module that change nothing, or nothing that another looks at."""
    forgetful(monkeypatch)
    of_module.show()
    return of_module


@pytest.fixture
def full(furnished_of_module: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same, with something of everything; its `ids` are those of tasks."""
    forgetful(monkeypatch)
    furnished_of_module.show()
    return furnished_of_module


@pytest.fixture
def furnished(site: Site) -> dict[str, int]:
    return furnish(site)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *FLAGS])
        yield browser
        browser.close()


@contextmanager
def silent(context: BrowserContext) -> Iterator[Page]:
    """A page that writes nothing to the console and throws nothing; else it fails the test."""
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    assert said == []


@pytest.fixture
def page(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Signed in as an operator."""
    options = {"viewport": {"width": 1400, "height": 900}} | getattr(request, "param", {})
    with browser.new_context(base_url=site.url + "/", **options) as context:
        context.add_cookies([{"name": "celeriac", "value": site.session("operate"), "url": site.url}])
        with silent(context) as page:
            yield page


@pytest.fixture
def stack(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(database_url, redis_url, tmp_path)
    with stack.ends:
        yield stack


@pytest.fixture
def context(stack: Stack, browser: Browser) -> Iterator[BrowserContext]:
    """Signed in as an admin of the stack. What the browser says of servers that are away is meant."""
    with browser.new_context(base_url=f"{stack.url}/admin/") as context:
        context.add_cookies([{"name": "celeriac", "value": stack.api.session(), "url": stack.url}])
        yield context


@pytest.fixture
def watched(context: BrowserContext) -> Iterator[Page]:
    """A page of the stack whose server stays."""
    with silent(context) as page:
        yield page
