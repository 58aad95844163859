"""Dutchie: its public GraphQL API, which its own menus ask.

Operations: `filteredDispensaries` by state, or by slug ("cName"), and `filteredProducts` of a store. An error that
GraphQL tells counts as a refusal, unless the server says that it was its own. Each question is a visitor's of its own,
through a proxy if there are any: see `calls`. With `DUTCHIE_BY_PROXY=false` all ask from the worker's own address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import httpx

from tasks import calls
from tasks.calls import Pools, Visitor
from tasks.environment import address, positive, switch
from tasks.pace import Pace, retry_after_seconds
from tasks.platforms import (
    PlatformRateLimited,
    PlatformRefused,
    PlatformUnavailable,
    ProductFound,
    StoreFound,
    expecting,
    lowest,
    offers,
    together,
)
from tasks.text import storable, storable_or_none
from tasks.visits import VisitFailed

MENU_URL = "https://dutchie.com/dispensary/{}"

STORES = """
query ConsumerDispensaries($filter: dispensaryFilterInput!) {
  filteredDispensaries(filter: $filter) { id cName name location { city state } }
}
"""

STORE = """
query DispensaryBySlug($filter: dispensaryFilterInput!) {
  filteredDispensaries(filter: $filter) { id cName }
}
"""

PRODUCTS = """
query FilteredProducts($filter: productsFilterInput!, $page: Int, $perPage: Int) {
  filteredProducts(filter: $filter, page: $page, perPage: $perPage) {
    products {
      id Name brandName type Prices recPrices
      POSMetaData { children { option quantityAvailable } }
    }
    queryInfo { totalCount totalPages }
  }
}
"""

PAGE = 100

_SLUG = re.compile(r"/(?:dispensary|embedded-menu|stores)/([\w-]+)(?:/.*)?")
_SERVER_ERRORS = {"INTERNAL_SERVER_ERROR", "SERVICE_UNAVAILABLE", "GATEWAY_TIMEOUT"}


@dataclass(frozen=True)
class DutchieSettings:
    """Where Dutchie is and how hard it may be asked.

    timeout_seconds, connect_timeout_seconds: for each read or write, and for connecting. requests_per_second: of each
    process.
    """

    base_url: str = "https://dutchie.com/graphql"
    timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 5.0
    requests_per_second: float = 2.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> DutchieSettings:
        """Reads DUTCHIE_*; what is unset keeps its default. Raises ConfigurationError."""
        return cls(
            address("DUTCHIE_BASE_URL", cls.base_url, environ=environ),
            positive("DUTCHIE_TIMEOUT_SECONDS", cls.timeout_seconds, environ=environ),
            positive("DUTCHIE_CONNECT_TIMEOUT_SECONDS", cls.connect_timeout_seconds, environ=environ),
            positive("DUTCHIE_REQUESTS_PER_SECOND", cls.requests_per_second, environ=environ),
        )


class Dutchie:
    """A `Platform`, with one pace for all who ask. `pools`: where its visitors have their proxies from."""

    def __init__(self, settings: DutchieSettings, pools: Pools | None = None) -> None:
        self._pace = Pace(settings.requests_per_second)
        self._url, self._pools = settings.base_url, pools
        self._timeout = httpx.Timeout(settings.timeout_seconds, connect=settings.connect_timeout_seconds)

    def stores(self, state: str | None) -> Iterator[StoreFound]:
        wanted = {"activeOnly": True} | ({"state": state} if state else {})
        with self._visitor() as visitor:
            answer = self._ask(visitor, "ConsumerDispensaries", STORES, {"filter": wanted})
        with expecting("a list of dispensaries"):
            return iter([_store(found) for found in answer["filteredDispensaries"]])

    def resolve(self, menu_url: str) -> str | None:
        """Raises PlatformRefused for a URL that is no menu of Dutchie's."""
        slug = slug_of(menu_url)
        with self._visitor() as visitor:
            answer = self._ask(visitor, "DispensaryBySlug", STORE, {"filter": {"cNameOrID": slug}})
        with expecting("a list of dispensaries"):
            found = [str(store["id"]) for store in answer["filteredDispensaries"]]
            return found[0] if found else None

    def products(self, platform_dispensary_id: str) -> Iterator[ProductFound]:
        """Page by page, as far as the first page said they go, or the menu shrank meanwhile."""
        with self._visitor() as visitor:
            for page in count():
                found, pages = self._page(visitor, platform_dispensary_id, page)
                yield from found
                if page + 1 >= pages:
                    return

    def _page(self, visitor: Visitor, store: str, page: int) -> tuple[list[ProductFound], int]:
        wanted = {"dispensaryId": store, "Status": "Active", "pricingType": "rec"}
        answer = self._ask(visitor, "FilteredProducts", PRODUCTS, {"filter": wanted, "page": page, "perPage": PAGE})
        with expecting("a page of products"):
            found = answer["filteredProducts"]
            return [_product(product) for product in found["products"]], int(found["queryInfo"]["totalPages"])

    @contextmanager
    def _visitor(self) -> Iterator[Visitor]:
        """Its failures in the platforms' terms."""
        try:
            with calls.calling(self._timeout, self._pools) as visitor:
                yield visitor
        except VisitFailed as failed:
            raise PlatformUnavailable(str(failed)) from failed

    def _ask(self, visitor: Visitor, operation: str, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        self._pace.wait()
        body = {"operationName": operation, "query": query, "variables": variables}
        try:
            response = visitor.post(self._url, body)
        except httpx.RequestError as error:
            raise PlatformUnavailable(f"{operation}: {type(error).__name__}: {error}") from error
        return data_of(operation, response)


def slug_of(menu_url: str) -> str:
    """The store's name in the address of its menu. Raises PlatformRefused."""
    found = _SLUG.fullmatch(urlsplit(menu_url).path)
    if not found:
        raise PlatformRefused(f"{menu_url} is no menu of Dutchie's: it should look like {MENU_URL.format('a-store')}")
    return found[1]


def data_of(operation: str, response: httpx.Response) -> dict[str, Any]:
    """What a GraphQL answer tells. Raises PlatformError."""
    status = response.status_code
    if status == 429:
        raise PlatformRateLimited(retry_after_seconds(response.headers.get("Retry-After"), datetime.now(UTC)))
    if status >= 500 or status == 408:
        raise PlatformUnavailable(f"{operation}: Dutchie answered {status}")
    answer = _json(operation, response)
    errors = answer.get("errors")
    if errors:
        raise _graphql_error(operation, errors)
    if status >= 400:
        raise PlatformRefused(f"{operation}: Dutchie refused with {status}")
    if not isinstance(answer.get("data"), dict):
        raise PlatformUnavailable(f"{operation}: Dutchie's answer has no data")
    return dict(answer["data"])


def _json(operation: str, response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    if response.status_code >= 400:
        return {}
    raise PlatformUnavailable(f"{operation}: {response.status_code} without readable JSON")


def _graphql_error(operation: str, errors: Any) -> PlatformUnavailable | PlatformRefused:
    first = errors[0] if isinstance(errors, list) and isinstance(errors[0], dict) else {}
    code = (first.get("extensions") or {}).get("code", "")
    kind = PlatformUnavailable if code in _SERVER_ERRORS else PlatformRefused
    return kind(f"{operation}: {code} {first.get('message', errors)}"[:500])


def _store(found: Mapping[str, Any]) -> StoreFound:
    location = found["location"] or {}
    menu_url = MENU_URL.format(storable(found["cName"]))
    return StoreFound(
        menu_url,
        storable(found["name"]),
        storable_or_none(location.get("city")),
        storable_or_none(location.get("state")),
    )


def _product(found: Mapping[str, Any]) -> ProductFound:
    name, brand, category = (
        storable(found["Name"]),
        storable_or_none(found["brandName"]),
        storable_or_none(found["type"]),
    )
    price, stock = lowest(found["recPrices"] or found["Prices"] or ()), together(_stock(found))
    return ProductFound(str(found["id"]), name, brand, category, price, stock)


def _stock(found: Mapping[str, Any]) -> Iterator[Any]:
    options = (found["POSMetaData"] or {}).get("children", ())
    return (option["quantityAvailable"] for option in options)


def of_app() -> Dutchie:
    """Whose visitors go by the application's proxies, unless that is switched off."""
    return Dutchie(DutchieSettings.from_env(), calls.of_app if switch("DUTCHIE_BY_PROXY", default=True) else None)


offers("dutchie", of_app)
