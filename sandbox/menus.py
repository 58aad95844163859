"""Dutchie's public GraphQL API, as far as store menus need it: stores by state or slug, and what a store sells.

Queries are parsed, validated and executed against a schema (GraphQL over HTTP, POST). Faults are drawn and ordered by
the operation's name: `ConsumerDispensaries`, `DispensaryBySlug`, `FilteredProducts`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphql import build_schema, graphql_sync

from sandbox.stand_ins import Asked, Reply, Request

SCHEMA = build_schema("""
type Query {
  filteredDispensaries(filter: dispensaryFilterInput!): [Dispensary!]!
  filteredProducts(filter: productsFilterInput!, page: Int = 0, perPage: Int = 50): FilteredProducts!
}
input dispensaryFilterInput { activeOnly: Boolean, cNameOrID: String, state: String }
input productsFilterInput { dispensaryId: ID!, Status: String, pricingType: String }
type Dispensary { id: ID!, cName: String!, name: String!, location: Location! }
type Location { city: String, state: String }
type FilteredProducts { products: [Product!]!, queryInfo: QueryInfo! }
type QueryInfo { totalCount: Int!, totalPages: Int! }
type Product {
  id: ID!, Name: String!, brandName: String, type: String, Status: String!
  Options: [String!]!, Prices: [Float!]!, recPrices: [Float!]!, POSMetaData: POSMetaData
}
type POSMetaData { children: [Option!]! }
type Option { option: String, quantityAvailable: Int }
""")

#: As many products as Dutchie gives at once, whatever is asked for.
LARGEST_PAGE = 100

BRANDS, KINDS = ("Alpine", "Bluebird", "Cactus", "Dune"), ("Flower", "Edible", "Vaporizers")


@dataclass
class Item:
    id: str
    name: str
    brand: str
    kind: str
    prices: list[float]
    stock: list[int]

    def document(self) -> dict[str, Any]:
        options = ["1g", "3.5g", "7g"][: len(self.prices)]
        children = [{"option": o, "quantityAvailable": n} for o, n in zip(options, self.stock, strict=True)]
        return {
            "id": self.id, "Name": self.name, "brandName": self.brand, "type": self.kind, "Status": "Active",
            "Options": options, "Prices": self.prices, "recPrices": self.prices, "POSMetaData": {"children": children},
        }  # fmt: skip


class Asker(NamedTuple):
    """Who asked over the API, and what for."""

    operation: str
    address: str
    agent: str
    cookie: str


@dataclass
class Store:
    id: str
    slug: str
    state: str
    items: dict[str, Item] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        location = {"city": "Phoenix", "state": self.state}
        return {"id": self.id, "cName": self.slug, "name": self.slug.replace("-", " ").title(), "location": location}


class Menus:
    """All stores; every method is atomic. Ids follow from slugs: the same stores are the same in every run."""

    name, prefix = "menus", "/graphql"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._stores: dict[str, Store] = {}
            self._askers: deque[Asker] = deque(maxlen=10_000)

    @property
    def askers(self) -> list[Asker]:
        """Who asked last, in their order."""
        with self._lock:
            return list(self._askers)

    def open_stores(self, count: int, *, state: str = "AZ", products: int = 5) -> list[str]:
        """The slugs of new stores `az-1`, `az-2`, …, each with so many products."""
        slugs = [f"{state.lower()}-{n}" for n in range(1, count + 1)]
        for slug in slugs:
            self.open_store(slug, state=state, products=products)
        return slugs

    def open_store(self, slug: str, *, state: str = "AZ", products: int = 5) -> str:
        """The new store's id."""
        items = {item.id: item for item in (_item(slug, n) for n in range(products))}
        with self._lock:
            self._stores[slug] = Store(_id(slug), slug, state, items)
        return _id(slug)

    def close_store(self, slug: str) -> None:
        with self._lock:
            self._stores.pop(slug)

    def id_of(self, slug: str) -> str:
        with self._lock:
            return self._stores[slug].id

    def products_of(self, slug: str) -> list[str]:
        with self._lock:
            return list(self._stores[slug].items)

    def rename(self, slug: str, product: str, name: str) -> None:
        with self._lock:
            self._stores[slug].items[product].name = name

    def change(self, slug: str, product: str, *, prices: list[float], stock: list[int]) -> None:
        """Of each option, at most three."""
        with self._lock:
            item = self._stores[slug].items[product]
            item.prices, item.stock = prices, stock

    def drop(self, slug: str, product: str) -> None:
        with self._lock:
            self._stores[slug].items.pop(product)

    def environ(self, http_url: str) -> dict[str, str]:
        return {"DUTCHIE_BASE_URL": f"{http_url}{self.prefix}"}

    def describe(self) -> dict[str, Any]:
        with self._lock:
            return {slug: len(store.items) for slug, store in self._stores.items()}

    def answer(self, request: Request) -> Asked | Reply:
        try:
            asked = json.loads(request.body)
            name, query, variables = str(asked["operationName"]), str(asked["query"]), dict(asked["variables"])
        except (ValueError, TypeError, KeyError):
            return Reply(400, {"errors": [{"message": "POST body must have operationName, query and variables"}]})
        agent, cookie = request.headers.get("User-Agent") or "", request.headers.get("Cookie") or ""
        with self._lock:
            self._askers.append(Asker(name, request.client, agent, cookie))
        return Asked(name, json.dumps(variables, sort_keys=True), lambda: self._execute(name, query, variables))

    def _execute(self, name: str, query: str, variables: dict[str, Any]) -> Reply:
        root = {"filteredDispensaries": self._dispensaries, "filteredProducts": self._products}
        with self._lock:
            found = graphql_sync(SCHEMA, query, root, variable_values=variables, operation_name=name)
        return Reply(400 if found.data is None else 200, found.formatted)

    def _dispensaries(self, _: Any, filter: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: A002 - GraphQL's name
        wanted, state = filter.get("cNameOrID"), filter.get("state")
        stores = [s for s in self._stores.values() if wanted in (None, s.slug, s.id) and state in (None, s.state)]
        return [store.document() for store in stores]

    def _products(self, _: Any, filter: dict[str, Any], page: int, perPage: int) -> dict[str, Any]:  # noqa: A002, N803
        items = [i for s in self._stores.values() if s.id == filter["dispensaryId"] for i in s.items.values()]
        size = max(1, min(perPage, LARGEST_PAGE))
        shown = items[page * size : (page + 1) * size]
        pages = {"totalCount": len(items), "totalPages": -(-len(items) // size)}
        return {"products": [item.document() for item in shown], "queryInfo": pages}


def _item(slug: str, n: int) -> Item:
    brand, kind = BRANDS[n % len(BRANDS)], KINDS[n % len(KINDS)]
    price = 10.0 + n % 50
    return Item(_id(f"{slug}/{n}"), f"{brand} {kind} {n}", brand, kind, [price, price * 3], [n % 7, 2])


def _id(text: str) -> str:
    """As long as those of MongoDB, which Dutchie's are."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]
