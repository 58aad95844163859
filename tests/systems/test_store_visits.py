"""Stores on web pages: workers' tasks visit them with browsers, each as somebody else, by a proxy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import sandbox
from sandbox.webmenus import Visit, WebMenus
from tasks.app import app
from tasks.stores import store_discovery
from tests.conftest import Servers
from tests.processes import until
from tests.systems.stack import Stack, on_servers

STORES, PROXIES = 2, 3

QUEUES = ("store_discovery", "entry_point_discovery", "product_discovery")

STOCKED = "SELECT count(*) FROM dispensaries WHERE platform = 'webmenus' AND last_resync_at IS NOT NULL"


@pytest.fixture
def stack(servers: Servers, template: str, tmp_path: Path, chromium: str) -> Iterator[Stack]:
    redis.Redis.from_url(servers.redis_url).flushdb()
    with (
        sandbox.start(proxies=PROXIES + 1) as outside,
        servers.cloned(template) as url,
        Stack(url, servers.redis_url, outside, tmp_path) as stack,
        on_servers(app, stack.environ),
    ):
        app.register_roles()
        yield stack


def test_tasks_at_one_time_are_never_the_same_visitor_and_none_is_known_from_before(stack: Stack) -> None:
    pages = stack.outside.webmenus
    pages.open_stores(STORES, products=3)
    *good, leaking = stack.outside.proxies
    leaking.leaves_by = "127.0.0.1"
    for proxy in stack.outside.proxies:
        stack.rows("SELECT add_proxy(:url)", url=proxy.url)
    worker = stack.worker(*QUEUES, CPU_BACKOFF_THRESHOLD="1")
    with pages.held():
        store_discovery.delay("webmenus", "AZ")
        at_once = until(lambda: len(found := under_way(pages)) == 2 and found, "two visits at a time")
        assert len({visit.address for visit in at_once}) == 2
        assert stack.rows.one("SELECT count(*) FROM proxies WHERE leased_until > now()") == 2
    until(lambda: stack.rows.one(STOCKED) == STORES, "all stores' products")
    made = pages.visits
    assert len(made) == 1 + 2 * STORES
    assert {visit.address for visit in made} == {proxy.address for proxy in good}
    assert {(visit.cookie, visit.stored, visit.asked_for_script) for visit in made} == {("", "", True)}
    assert len({visit.agent for visit in made}) > 1
    assert "this worker's own address" in worker.printed()
    health = "SELECT failures, lease IS NULL FROM proxies ORDER BY id"
    until(lambda: stack.rows(health) == [*[(0, True)] * PROXIES, (1, True)], "all proxies to be given back")


def test_tasks_of_the_default_platform_go_by_a_fresh_proxy_each(stack: Stack) -> None:
    menus = stack.outside.menus
    menus.open_stores(STORES, products=130)
    *good, leaking = stack.outside.proxies
    leaking.leaves_by = "127.0.0.1"
    for proxy in stack.outside.proxies:
        stack.rows("SELECT add_proxy(:url)", url=proxy.url)
    stack.worker(*QUEUES)
    store_discovery.delay("dutchie", "AZ")
    stocked = STOCKED.replace("webmenus", "dutchie")
    until(lambda: stack.rows.one(stocked) == STORES, "all stores' products")
    made = menus.askers
    assert {asker.address for asker in made} <= {proxy.address for proxy in good}
    assert {asker.cookie for asker in made} == {""}
    assert len({(asker.address, asker.agent) for asker in made}) > 1
    assert len(made) == 1 + STORES + 2 * STORES, "two pages a menu, and nobody's is asked again"
    health = "SELECT count(*), count(lease), sum(failures) FROM proxies"
    until(lambda: stack.rows(health) == [(PROXIES + 1, 0, 1)], "all proxies to be given back")


def under_way(pages: WebMenus) -> list[Visit]:
    return [visit for visit in pages.visits if visit.ended is None]
