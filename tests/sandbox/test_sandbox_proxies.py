"""Proxies that leave by their own addresses, and pages that tell which traces a visitor brought along."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import sandbox


@pytest.fixture
def outside() -> Iterator[sandbox.Sandbox]:
    with sandbox.start(proxies=2) as running:
        yield running


def asked(outside: sandbox.Sandbox, number: int, path: str = "/echo") -> httpx.Response:
    with httpx.Client(proxy=outside.proxies[number].url, trust_env=False) as client:
        return client.get(f"{outside.http_url}{path}")


def test_the_outside_sees_a_proxy_s_address(outside: sandbox.Sandbox) -> None:
    assert httpx.get(f"{outside.http_url}/echo", trust_env=False).text == "127.0.0.1"
    assert [asked(outside, number).text for number in (0, 1)] == ["127.0.0.11", "127.0.0.12"]
    assert [proxy.requests for proxy in outside.proxies] == [1, 1]


def test_a_proxy_leaks_or_breaks_on_order(outside: sandbox.Sandbox) -> None:
    leaks, breaks = outside.proxies
    leaks.leaves_by, breaks.is_broken = "127.0.0.1", True
    assert asked(outside, 0).text == "127.0.0.1"
    assert asked(outside, 1).status_code == 502
    outside.faults.order("reset_before", "page")
    assert asked(outside, 0, "/webmenus/stores").status_code == 502


def test_a_page_tells_only_who_ran_its_script_and_remembers_what_came_along(outside: sandbox.Sandbox) -> None:
    outside.webmenus.open_stores(1)
    with httpx.Client(base_url=f"{outside.http_url}/webmenus", trust_env=False) as visitor:
        assert "JavaScript" in visitor.get("/stores/az-1").text
        assert visitor.get("/data/stores/az-1").status_code == 403
        visitor.cookies.set("proof", visitor.cookies["visitor"][::-1])
        visitor.get("/menu.js")
        assert visitor.get("/data/stores/az-1", headers={"X-Stored": "v9"}).json()["name"] == "Az 1"
        visitor.get("/stores")
        assert visitor.get("/stores/nobody").status_code == 404
        assert visitor.post("/stores").status_code == 405
    first, second = outside.webmenus.visits
    assert (first.address, first.cookie, first.stored, first.asked_for_script) == ("127.0.0.1", "", "v9", True)
    assert "visitor=v0" in second.cookie
