"""A browser task's visit by a real Chromium: a fresh proxy, nothing of another visit, a preflight, always closed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event, Thread

import httpx
import psutil
import pytest

import sandbox
from tasks import browser, visits
from tasks.app import app
from tasks.chromium import CLOSING, BrowserEnded, NoBrowser, PageFailed, agents
from tasks.pace import NotNow
from tasks.platforms import PlatformRateLimited, PlatformRefused, PlatformUnavailable
from tasks.proxies import NoProxyFree, Pool
from tasks.visits import (
    VisitFailed,
    VisitSettings,
    own_address,
    visit,
)
from tests.conftest import Servers
from tests.outside.test_browser import Interrupted, chromiums
from tests.outside.visitors import OWN, Outside, trickle
from tests.processes import Rows, until
from tests.systems.stack import on_servers

HEALTH = "SELECT failures, last_error, lease IS NULL FROM proxies ORDER BY id"


@pytest.fixture(scope="module")
def around(servers: Servers, template: str, chromium: str) -> Iterator[Outside]:
    quick = {"BROWSER_VISIT_SECONDS": "20", "PROXY_REST_SECONDS": "30"}
    with sandbox.start(proxies=3) as running, servers.cloned(template) as url:
        environ = {"DATABASE_URL": url, "REDIS_URL": servers.redis_url, **running.environ(), **quick}
        rows = Rows(url)
        with on_servers(app, environ):
            yield Outside(running, rows)
            browser._of_process.pop(os.getpid()).close()
        rows.close()


@pytest.fixture
def outside(around: Outside) -> Outside:
    around.begin()
    return around


def test_what_pages_tell_is_read_by_another_visitor_each_who_knows_nothing_of_those_before(outside: Outside) -> None:
    (found,) = outside.menus.stores("AZ")
    assert (found.name, found.city, found.state) == ("Az 1", "Phoenix", "AZ")
    assert outside.menus.resolve(found.menu_url) == outside.store
    first, _ = outside.menus.products(outside.store)
    assert (first.name, first.brand, first.category, first.price, first.stock) == (
        "Alpine Flower 0", "Alpine", "Flower", 10, 2
    )  # fmt: skip
    assert list(outside.menus.stores("NV")) == []
    made = outside.pages.visits
    addresses = [proxy.address for proxy in outside.proxies]
    assert [visit.address for visit in made] == [*addresses, addresses[0]]
    assert {(visit.cookie, visit.stored, visit.asked_for_script) for visit in made} == {("", "", True)}
    assert outside.rows(HEALTH) == [(0, None, True)] * 3


def test_the_agents_are_those_of_ordinary_browsers() -> None:
    told = agents("140.0.7339.127")
    assert len(set(told)) == 9
    assert not any("Headless" in agent for agent in told)
    assert all(f"Chrome/{major}.0.0.0 Safari" in " ".join(told) for major in (138, 139, 140))


def test_the_pages_tell_nothing_to_whoever_runs_no_script(outside: Outside) -> None:
    url = f"{outside.running.http_url}/webmenus/menus/{outside.store}"
    with httpx.Client(trust_env=False) as client:
        assert "ItemList" not in client.get(url).text
        assert client.get(url.replace("/menus/", "/data/menus/")).status_code == 403


def test_a_page_that_is_not_there_is_no_fault_of_the_proxy(outside: Outside) -> None:
    assert outside.menus.resolve(f"{outside.running.http_url}/webmenus/stores/nobody") is None
    assert outside.rows(HEALTH) == [(0, None, True)] * 3
    with pytest.raises(PlatformRefused, match="is no menu here: it should begin with"):
        outside.menus.resolve("https://elsewhere.example/stores/az-1")


def test_a_site_that_turns_an_address_away_rests_its_proxy(outside: Outside) -> None:
    outside.running.faults.order("rate_limited", "page")
    with pytest.raises(PlatformRateLimited) as limited:
        outside.read()
    assert limited.value.retry_after == 1
    assert [row[0] for row in outside.rows(HEALTH)] == [1, 0, 0]


def test_a_page_that_fails_is_worth_another_attempt(outside: Outside) -> None:
    outside.running.faults.order("server_error", "page")
    with pytest.raises(PlatformUnavailable, match=r"answered 50\d"):
        outside.read()


def test_a_proxy_that_shows_the_wrong_address_or_none_rests_and_another_is_tried(outside: Outside) -> None:
    own, other, good = outside.proxies
    own.leaves_by, other.leaves_by = OWN, "127.0.0.99"
    outside.rows("UPDATE proxies SET address = NULL WHERE url <> :url", url=other.url)
    assert outside.read() == 2
    (first, _, _), (second, _, _), third = [(*row[:2], row[2]) for row in outside.rows(HEALTH)]
    assert (first, second, third) == (1, 1, (0, None, True))
    told = [row[1] for row in outside.rows(HEALTH)]
    assert told[:2] == [
        f"the outside sees {OWN}, this worker's own address", f"the outside sees 127.0.0.99, not {other.address}"
    ]  # fmt: skip
    assert [visit.address for visit in outside.pages.visits] == [good.address]
    own.leaves_by, good.is_broken = own.address, True
    with pytest.raises(NoProxyFree):
        outside.read()


def test_no_more_proxies_are_tried_than_is_sensible_and_no_page_is_asked_for(outside: Outside) -> None:
    for proxy in outside.proxies:
        proxy.is_broken = True
    with pytest.raises(
        PlatformUnavailable, match=r"no proxy passed the preflight: proxy http://127\.0\.0\.11:\d+: .*502"
    ):
        outside.read()
    assert [row[0] for row in outside.rows(HEALTH)] == [1, 1, 1]
    assert outside.pages.visits == []
    with pytest.raises(NotNow):
        outside.read()


def test_a_page_that_came_without_what_is_wanted_of_it_is_no_fault_of_the_proxy(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_VISIT_SECONDS", "8")
    with (
        outside.pages.held(),
        pytest.raises(PlatformUnavailable, match="came without what was wanted of it"),
    ):
        outside.read()
    assert outside.rows(HEALTH) == [(0, None, True)] * 3


def test_a_proxy_that_says_nothing_leaves_time_for_the_next(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_PREFLIGHT_SECONDS", "2")
    with socket.create_server((OWN, 0)) as silent:
        outside.rows("SELECT add_proxy(:url)", url=f"http://{OWN}:{silent.getsockname()[1]}")
        outside.rows("UPDATE proxies SET last_used_at = now() WHERE address IS NOT NULL")
        assert outside.read() == 2
    (*_, (failures, why, _)) = outside.rows(HEALTH)
    assert (failures, "Timeout" in why) == (1, True)


def test_a_proxy_that_others_left_too_little_time_is_not_blamed(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(lambda _: None)
    monkeypatch.setenv("BROWSER_VISIT_SECONDS", "8")
    monkeypatch.setenv("PROXY_PREFLIGHT_SECONDS", "6")
    outside.rows("DELETE FROM proxies")
    with socket.create_server((OWN, 0)) as first, socket.create_server((OWN, 0)) as second:
        for silent in (first, second):
            outside.rows("SELECT add_proxy(:url)", url=f"http://{OWN}:{silent.getsockname()[1]}")
        with pytest.raises(PlatformUnavailable, match="no proxy passed the preflight"):
            outside.read()
    assert [(failures, free) for failures, _, free in outside.rows(HEALTH)] == [(1, True), (0, True)]


def test_a_page_that_never_rests_is_over_when_its_visit_is(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading has no time limit of Playwright's: the browser is killed, before the proxy is anybody else's."""
    monkeypatch.setenv("BROWSER_VISIT_SECONDS", "6")
    with pytest.raises(BrowserEnded):
        visit(lambda pages: pages._tab.evaluate("() => { for (;;) {} }"))
    monkeypatch.undo()
    assert outside.rows(HEALTH) == [(0, None, True)] * 3
    assert outside.read() == 2


def test_time_and_lease_begin_when_the_browser_is_free(outside: Outside) -> None:
    visit(lambda _: None)
    process, is_busy, free = browser._browser(browser.found()), Event(), Event()
    process.order(lambda _: (is_busy.set(), free.wait()))
    assert is_busy.wait(10)
    with ThreadPoolExecutor() as others:
        waits = others.submit(visit, lambda pages: pages._give_up)
        try:
            until(lambda: process._orders.qsize() == 1, "the visit to wait for the browser")
            assert outside.rows(HEALTH) == [(0, None, True)] * 3, "no proxy is taken"
            freed = time.monotonic()
        finally:
            free.set()
        assert waits.result() >= freed + 20 - CLOSING


def test_the_worker_s_own_address_is_found_out_by_no_proxy_of_the_environment(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", outside.proxies[0].url)
    assert own_address(VisitSettings.from_env()) == OWN


def test_an_echo_that_trickles_in_is_given_up(outside: Outside) -> None:
    """Byte after byte, none of them late: there is a time limit for all of them."""
    with socket.create_server((OWN, 0)) as listening, ThreadPoolExecutor() as others:
        hears = others.submit(trickle, listening)
        echo = f"http://{OWN}:{listening.getsockname()[1]}/"
        with pytest.raises(VisitFailed, match=r"does not tell this worker's own address: no answer within 0\.5 s"):
            own_address(VisitSettings(echo, preflight_seconds=0.5))
        with pytest.raises(VisitFailed, match="no answer within 0"):
            own_address(VisitSettings(echo, preflight_seconds=60), give_up=time.monotonic() + 0.1)
        hears.result(30)


def test_where_there_is_no_browser_a_visit_waits_for_one_and_says_so_once(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHROMIUM_PATH", "/nowhere")
    browser._say_once.cache_clear()
    for _ in range(2):
        with pytest.raises(NoBrowser) as missing:
            outside.read()
    assert (isinstance(missing.value, NotNow), missing.value.retry_after) == (True, 300)
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(": install")[0] for line in told] == [
        "tasks wait for a browser, looking every 300 s: CHROMIUM_PATH='/nowhere' is no program"
    ]


def test_without_an_echo_no_proxy_is_blamed(outside: Outside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXY_ECHO_URL", f"{outside.running.http_url}/_sandbox/state")
    with pytest.raises(VisitFailed, match="does not tell this worker's own address: the echo told no address"):
        visit(lambda _: None)
    assert outside.rows(HEALTH) == [(0, None, True)] * 3


def test_without_proxies_it_says_so_once_and_visits_by_itself(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    outside.rows("DELETE FROM proxies")
    visits._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, "tasks.visits"):
        assert [outside.read(), outside.read()] == [2, 2]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["there are no proxies"]
    assert [(visit.address, visit.cookie) for visit in outside.pages.visits] == [(OWN, "")] * 2


def test_a_browser_that_is_killed_is_no_fault_of_the_proxy(outside: Outside) -> None:
    def kill(_: object) -> None:
        for process in chromiums():
            with suppress(psutil.NoSuchProcess):  # one takes others with it
                process.kill()
        until(lambda: not [p for p in chromiums() if p.status() != psutil.STATUS_ZOMBIE], "Chromium to be gone")

    with pytest.raises(PageFailed):
        visit(lambda pages: (kill(pages), pages.texts(outside.running.http_url, "body")))
    assert outside.rows(HEALTH) == [(0, None, True)] * 3
    assert outside.read() == 2


def test_whoever_is_interrupted_leaves_the_proxy_of_a_page_that_may_be_open_still(outside: Outside) -> None:
    """As amid the order to a browser elsewhere."""

    class Elsewhere:
        def visit(self, *_: object) -> None:
            raise Interrupted

    settings = VisitSettings.from_env()
    pool = Pool(app.database, seconds=60, rest=1)
    taken = pool.take()
    assert taken
    with pytest.raises(Interrupted):
        visits.Attempt(pool, taken, settings, time.monotonic() + 20).visit(Elsewhere(), OWN, lambda _: None)  # type: ignore[arg-type]
    assert outside.rows.one("SELECT count(*) FROM proxies WHERE leased_until > now()") == 1


def test_what_work_raises_gives_the_proxy_back(outside: Outside) -> None:
    with pytest.raises(ZeroDivisionError):
        visit(lambda _: 1 / 0)
    assert outside.rows(HEALTH) == [(0, None, True)] * 3


def test_an_interrupted_visit_keeps_its_proxy_until_its_browser_is_through(outside: Outside) -> None:
    def interrupt() -> None:
        until(lambda: outside.running.describe()["requests"].get("page", 0) > asked, "the page to be asked for")
        os.kill(os.getpid(), signal.SIGUSR2)

    def raises(*_: object) -> None:
        raise Interrupted

    asked = outside.running.describe()["requests"].get("page", 0)
    outside.running.faults.order("hang_before", "page")
    before = signal.signal(signal.SIGUSR2, raises)
    try:
        Thread(target=interrupt).start()
        with pytest.raises(Interrupted):
            outside.read()
    finally:
        signal.signal(signal.SIGUSR2, before)
    in_use = "SELECT count(*) FROM proxies WHERE leased_until > now()"
    assert outside.rows.one(in_use) == 1
    outside.running.release()
    until(lambda: outside.rows.one(in_use) == 0, "the proxy to be given back")
    assert outside.read() == 2
