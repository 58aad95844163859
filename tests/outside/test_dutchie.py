"""The client of Dutchie's API against the sandbox, over real sockets."""

from __future__ import annotations

import socket
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx
import pytest

import sandbox
from celeriac import ConfigurationError
from tasks.dutchie import Dutchie, DutchieSettings, data_of, slug_of
from tasks.platforms import (
    PlatformError,
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnavailable,
    client_of,
)


def settings_for(outside: sandbox.Sandbox, **changes: Any) -> DutchieSettings:
    return replace(DutchieSettings.from_env(outside.environ()), requests_per_second=1000.0, **changes)


@pytest.fixture
def dutchie(outside: sandbox.Sandbox) -> Dutchie:
    return Dutchie(settings_for(outside, timeout_seconds=0.5))


def test_the_stores_of_a_state_or_of_all(dutchie: Dutchie, outside: sandbox.Sandbox) -> None:
    outside.menus.open_stores(3, state="AZ")
    outside.menus.open_stores(2, state="NV")
    (first, *_), everywhere = list(dutchie.stores("NV")), list(dutchie.stores(None))
    assert len(everywhere) == 5
    assert (first.menu_url, first.name) == ("https://dutchie.com/dispensary/nv-1", "Nv 1")
    assert (first.city, first.state) == ("Phoenix", "NV")


def test_a_store_is_resolved_by_the_name_in_its_menus_address(dutchie: Dutchie, outside: sandbox.Sandbox) -> None:
    store = outside.menus.open_store("green-door")
    for path in ("dispensary/green-door", "embedded-menu/green-door/products/flower", "stores/green-door"):
        assert dutchie.resolve(f"https://dutchie.com/{path}") == store
    assert dutchie.resolve("https://dutchie.com/dispensary/nobody") is None


@pytest.mark.parametrize("url", ["https://dutchie.com/", "https://example.com/shop", "", "dispensary"])
def test_an_address_that_is_no_menu_is_refused_before_asking(url: str) -> None:
    with pytest.raises(PlatformRefused, match="should look like https://dutchie"):
        slug_of(url)


def test_products_have_their_lowest_price_and_all_their_stock(dutchie: Dutchie, outside: sandbox.Sandbox) -> None:
    store = outside.menus.open_store("green-door", products=2)
    first, second = outside.menus.products_of("green-door")
    outside.menus.change("green-door", first, prices=[12.5, 9.99], stock=[3, 4])
    outside.menus.change("green-door", second, prices=[], stock=[])
    found = {product.platform_product_id: product for product in dutchie.products(store)}
    assert (found[first].price, found[first].stock) == (Decimal("9.99"), 7)
    assert (found[second].price, found[second].stock) == (None, None)
    assert (found[first].name, found[first].brand, found[first].category) == ("Alpine Flower 0", "Alpine", "Flower")


def test_a_name_that_postgres_could_not_store_is_told_without_what_it_cannot(
    dutchie: Dutchie, outside: sandbox.Sandbox
) -> None:
    store = outside.menus.open_store("green-door", products=1)
    (product,) = outside.menus.products_of("green-door")
    outside.menus.rename("green-door", product, "Blue\x00 Dream \ud800")
    assert [found.name for found in dutchie.products(store)] == ["Blue Dream ?"]


def test_all_pages_are_read(dutchie: Dutchie, outside: sandbox.Sandbox) -> None:
    store = outside.menus.open_store("green-door", products=250)
    assert len({product.platform_product_id for product in dutchie.products(store)}) == 250
    assert outside.describe()["requests"] == {"FilteredProducts": 3}


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("rate_limited", PlatformRateLimited),
        ("server_error", PlatformUnavailable),
        ("hang_before", PlatformUnavailable),
        ("reset_before", PlatformUnavailable),
    ],
)
def test_each_fault_becomes_its_error_and_the_client_does_not_retry(
    dutchie: Dutchie, outside: sandbox.Sandbox, kind: Any, error: type[PlatformError]
) -> None:
    outside.faults.order(kind)
    with pytest.raises(error) as raised:
        dutchie.resolve("https://dutchie.com/dispensary/green-door")
    assert type(raised.value) is error
    assert outside.describe()["requests"] == {"DispensaryBySlug": 1}


def test_a_rate_limit_tells_the_seconds_to_wait(dutchie: Dutchie, outside: sandbox.Sandbox) -> None:
    outside.faults.change({"rates": {"rate_limited": 1}, "retry_after": 30})
    with pytest.raises(PlatformRateLimited, match="try again in 30 s") as limited:
        dutchie.stores("AZ")
    assert limited.value.retry_after == 30


def test_a_server_that_is_not_there_is_unavailable(outside: sandbox.Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = Dutchie(settings_for(outside, base_url=f"http://127.0.0.1:{port}/graphql"))
    with pytest.raises(PlatformUnavailable, match="ConnectError"):
        client.stores(None)


@pytest.mark.parametrize(
    ("status", "document", "error"),
    [
        (200, {"data": None}, PlatformUnavailable),
        (200, [], PlatformUnavailable),
        (200, {"errors": [{"message": "no", "extensions": {"code": "INTERNAL_SERVER_ERROR"}}]}, PlatformUnavailable),
        (200, {"errors": [{"message": "no", "extensions": {"code": "BAD_USER_INPUT"}}]}, PlatformRefused),
        (200, {"errors": "no"}, PlatformRefused),
        (400, {"errors": [{"message": "Syntax Error"}]}, PlatformRefused),
        (403, "<html>", PlatformRefused),
        (408, {}, PlatformUnavailable),
    ],
)
def test_what_an_answer_without_data_means(status: int, document: Any, error: type[PlatformError]) -> None:
    with pytest.raises(error):
        data_of("FilteredProducts", httpx.Response(status, json=document))


def test_an_answer_of_another_shape_is_unavailable(
    dutchie: Dutchie, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.dutchie.STORES", "query ConsumerDispensaries { __typename }")
    with pytest.raises(PlatformUnavailable, match="did not answer with a list of dispensaries"):
        dutchie.stores(None)


def test_settings_are_read_from_the_environment() -> None:
    read = DutchieSettings.from_env({"DUTCHIE_BASE_URL": "http://localhost:1/graphql", "DUTCHIE_TIMEOUT_SECONDS": "2"})
    assert (read.base_url, read.timeout_seconds, read.requests_per_second) == ("http://localhost:1/graphql", 2.0, 2.0)
    assert DutchieSettings.from_env({}).base_url == "https://dutchie.com/graphql"


@pytest.mark.parametrize(
    "wrong", [{"DUTCHIE_BASE_URL": "dutchie"}, {"DUTCHIE_TIMEOUT_SECONDS": "0"}, {"DUTCHIE_REQUESTS_PER_SECOND": "x"}]
)
def test_a_setting_that_cannot_be_is_named(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        DutchieSettings.from_env(wrong)


def test_a_platform_nobody_offers_is_told_with_those_there_are() -> None:
    with pytest.raises(PlatformRefused, match="no platform 'jane'; there are: dutchie"):
        client_of("jane")
