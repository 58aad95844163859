"""Dutchie, asked over its API: each question is a visitor's of its own, by a fresh proxy, who is known to nobody."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread

import pytest

import sandbox
from sandbox.menus import Asker
from tasks import calls
from tasks.app import app
from tasks.chromium import agents
from tasks.dutchie import Dutchie, DutchieSettings, of_app
from tasks.platforms import PlatformRateLimited, PlatformUnavailable
from tasks.proxies import NoProxyFree
from tests.conftest import Servers
from tests.outside.visitors import OWN, trickle
from tests.processes import Rows
from tests.systems.stack import on_servers

HEALTH = "SELECT failures, last_error, lease IS NULL FROM proxies ORDER BY id"
MENU = "https://dutchie.com/dispensary/az-1"


class Asked:
    """The sandbox with three proxies, the pool that has them, and Dutchie."""

    def __init__(self, running: sandbox.Sandbox, rows: Rows) -> None:
        self.running, self.rows, self.proxies, self.menus = running, rows, running.proxies, running.menus
        settings = replace(DutchieSettings.from_env(running.environ()), requests_per_second=1000.0)
        self.dutchie = Dutchie(settings, calls.of_app)

    def begin(self) -> None:
        """A store `az-1` with three pages of products; all proxies are well and in the pool."""
        self.running.faults.reset()
        self.menus.clear()
        self.menus.open_stores(1, products=250)
        self.rows("DELETE FROM proxies")
        for proxy in self.proxies:
            proxy.leaves_by, proxy.is_broken, proxy.wants_password = proxy.address, False, False
            self.rows("SELECT add_proxy(:url, :address)", url=proxy.url, address=proxy.address)

    @property
    def addresses(self) -> list[str]:
        return [asker.address for asker in self.menus.askers]

    def resolve(self) -> str | None:
        return self.dutchie.resolve(MENU)


@pytest.fixture(scope="module")
def around(servers: Servers, template: str) -> Iterator[Asked]:
    with sandbox.start(proxies=3) as running, servers.cloned(template) as url:
        environ = {"DATABASE_URL": url, "REDIS_URL": servers.redis_url, **running.environ(), "PROXY_REST_SECONDS": "30"}
        rows = Rows(url)
        with on_servers(app, environ):
            yield Asked(running, rows)
        rows.close()


@pytest.fixture
def asked(around: Asked) -> Asked:
    around.begin()
    return around


def test_each_question_is_another_visitors_by_the_proxy_that_was_used_least_recently(asked: Asked) -> None:
    first, second, third = (proxy.address for proxy in asked.proxies)
    assert len(list(asked.dutchie.stores("AZ"))) == 1
    store = asked.resolve()
    assert store
    assert len(list(asked.dutchie.products(store))) == 250
    assert asked.resolve() == store
    assert asked.addresses == [first, second, third, third, third, first], "a menu's pages are one visitor's"
    assert {asker.cookie for asker in asked.menus.askers} == {""}
    assert asked.rows(HEALTH) == [(0, None, True)] * 3


def test_visitors_are_one_of_nine_ordinary_browsers_by_chance(asked: Asked) -> None:
    for _ in range(30):
        asked.resolve()
    told = {asker.agent for asker in asked.menus.askers}
    assert len(told) > 1
    assert told <= set(agents(calls.VERSION))
    list(asked.dutchie.products(asked.menus.id_of("az-1")))
    assert len({asker.agent for asker in asked.menus.askers[30:]}) == 1, "one visitor stays who it is"


def test_a_proxy_that_shows_the_wrong_address_or_none_rests_and_another_is_taken(asked: Asked) -> None:
    own, broken, good = asked.proxies
    own.leaves_by, broken.is_broken = OWN, True
    assert asked.resolve()
    assert asked.addresses == [good.address]
    (one, why, _), (two, said, _), third = asked.rows(HEALTH)
    assert (one, two, third) == (1, 1, (0, None, True))
    assert why == f"the outside sees {OWN}, this worker's own address"
    assert "502" in said


def test_where_no_proxy_passes_nobody_asks_from_the_workers_own_address(asked: Asked) -> None:
    for proxy in asked.proxies:
        proxy.leaves_by = OWN
    with pytest.raises(PlatformUnavailable, match="no proxy passed the preflight"):
        asked.resolve()
    with pytest.raises(NoProxyFree, match="none of 3 proxies is free"):
        asked.resolve()
    assert asked.addresses == []


def test_a_site_that_turns_an_address_away_rests_its_proxy(asked: Asked) -> None:
    asked.running.faults.order("rate_limited", "DispensaryBySlug")
    with pytest.raises(PlatformRateLimited):
        asked.resolve()
    assert [row[0] for row in asked.rows(HEALTH)] == [1, 0, 0]


def test_a_failure_of_dutchies_is_no_fault_of_the_proxy(asked: Asked) -> None:
    asked.running.faults.order("server_error", "DispensaryBySlug")
    with pytest.raises(PlatformUnavailable):
        asked.resolve()
    assert asked.rows(HEALTH) == [(0, None, True)] * 3


def test_whose_lease_has_run_out_asks_no_more(asked: Asked) -> None:
    """Another task may have its proxy."""
    menu = asked.dutchie.products(asked.menus.id_of("az-1"))
    next(menu)
    asked.rows("UPDATE proxies SET lease = NULL, leased_until = NULL")
    with pytest.raises(PlatformUnavailable, match=r"the lease of proxy \S+ has run out"):
        list(menu)
    assert len(asked.menus.askers) == 1


def test_a_lease_begins_anew_with_each_question(asked: Asked) -> None:
    menu = asked.dutchie.products(asked.menus.id_of("az-1"))
    next(menu)
    asked.rows("UPDATE proxies SET leased_until = now() + interval '1 second' WHERE lease IS NOT NULL")
    assert len(list(menu)) == 249
    assert asked.rows(HEALTH) == [(0, None, True)] * 3


def test_without_proxies_or_switched_off_all_ask_from_the_workers_own_address(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.rows("DELETE FROM proxies")
    assert asked.resolve()
    asked.begin()
    monkeypatch.setenv("DUTCHIE_BY_PROXY", "false")
    assert of_app().resolve(MENU)
    assert asked.menus.askers == [Asker("DispensaryBySlug", OWN, asked.menus.askers[0].agent, "")]


def test_where_no_proxy_is_for_http_nobody_asks_from_the_workers_own_address(asked: Asked) -> None:
    asked.rows("DELETE FROM proxies")
    asked.rows("SELECT add_proxy('socks5://10.0.0.7:1080')")
    with pytest.raises(NoProxyFree, match=r"no proxy has a scheme that this task can go by: looking again in 60\.0 s"):
        asked.resolve()
    assert asked.addresses == []


def test_a_proxy_that_wants_a_password_first_rests_and_dutchie_is_not_blamed(asked: Asked) -> None:
    """With http:// the proxy answers in the place of Dutchie."""
    first, _, _ = asked.proxies
    menu = asked.dutchie.products(asked.menus.id_of("az-1"))
    next(menu)
    first.wants_password = True
    with pytest.raises(PlatformUnavailable, match="ProxyError: the proxy answered 407 Proxy Authentication Required"):
        list(menu)
    assert asked.rows(HEALTH)[0] == (1, "the proxy answered 407 Proxy Authentication Required", True)


def test_preflights_have_a_time_limit_together(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that trickles keeps no task for longer than a visit may take."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asked.rows("DELETE FROM proxies")
        asked.rows("SELECT add_proxy(:url)", url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        monkeypatch.setenv("BROWSER_VISIT_SECONDS", "0.4")
        monkeypatch.setattr(calls, "own_address", lambda *_: OWN)
        trickling = Thread(target=trickle, args=(listening,))
        trickling.start()
        with pytest.raises(PlatformUnavailable, match=r"no proxy passed the preflight: .*no answer within 0\.[34]"):
            asked.resolve()
        trickling.join()
    assert [row[0] for row in asked.rows(HEALTH)] == [1]
