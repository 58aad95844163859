"""Menus that are web pages: only a browser that runs their scripts sees what is on them.

Read is what a page says of itself in schema.org's words, in JSON-LD, once its scripts have put it there:

    /stores?state=AZ      an ItemList of Store: url, name, address
    a store's url         its Store: identifier
    /menus/<identifier>   an ItemList of Product: sku, name, brand, category, offers with price and inventoryLevel

`WEBMENUS_BASE_URL` says where they are; without it, there is no such platform. Each question is a visit: see visits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast
from urllib.parse import quote, urlencode

from tasks.chromium import PageFailed, PageRefused
from tasks.environment import address
from tasks.pace import retry_after_seconds
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
from tasks.visits import VisitFailed, visit

NAME = "webmenus"

JSON_LD = 'script[type="application/ld+json"]'

Thing = Mapping[str, Any]


class WebMenus:
    """A `Platform`."""

    def __init__(self, base_url: str) -> None:
        self._base = base_url.rstrip("/")

    def stores(self, state: str | None) -> Iterator[StoreFound]:
        query = f"?{urlencode({'state': state})}" if state else ""
        listed = self._read(f"{self._base}/stores{query}", "ItemList")
        with expecting("a list of stores"):
            return iter([_store(store) for store in _items(listed)])

    def resolve(self, menu_url: str) -> str | None:
        """Raises PlatformRefused for a URL that is no menu here."""
        if not menu_url.startswith(f"{self._base}/stores/"):
            raise PlatformRefused(f"{menu_url} is no menu here: it should begin with {self._base}/stores/")
        try:
            store = self._read(menu_url, "Store")
        except PageMissing:
            return None
        with expecting("a store"):
            return str(store["identifier"])

    def products(self, platform_dispensary_id: str) -> Iterator[ProductFound]:
        menu = self._read(f"{self._base}/menus/{quote(platform_dispensary_id, safe='')}", "ItemList")
        with expecting("a list of products"):
            return iter([_product(product) for product in _items(menu)])

    def _read(self, url: str, kind: str) -> Thing:
        """The first thing of this kind that the page tells of, once it does."""
        with _failures():
            texts = visit(lambda pages: pages.texts(url, JSON_LD, lambda told: any(_things(told, kind))))
        return next(_things(texts, kind))


def _things(texts: Iterable[str], kind: str) -> Iterator[Thing]:
    """Pages tell of much besides, of the site itself, say, and not always readably."""
    for text in texts:
        with suppress(ValueError):
            thing = json.loads(text)
            if isinstance(thing, dict) and thing.get("@type") == kind:
                yield thing


class PageMissing(PlatformRefused):
    """There is no such page."""


@contextmanager
def _failures() -> Iterator[None]:
    """A visit's failures in the platforms' terms."""
    try:
        yield
    except PageRefused as refused:
        raise _refusal(refused) from refused
    except (PageFailed, VisitFailed) as failed:
        raise PlatformUnavailable(str(failed)) from failed


def _refusal(refused: PageRefused) -> Exception:
    if refused.status == 429:
        return PlatformRateLimited(retry_after_seconds(refused.retry_after, datetime.now(UTC)))
    if refused.status in (404, 410):
        return PageMissing(str(refused))
    kind = PlatformUnavailable if refused.status >= 500 or refused.status in (403, 408) else PlatformRefused
    return kind(str(refused))


def _items(listed: Thing) -> Iterable[Thing]:
    return [cast(Thing, element["item"]) for element in listed["itemListElement"]]


def _store(store: Thing) -> StoreFound:
    where = store.get("address") or {}
    return StoreFound(
        storable(store["url"]), storable(store["name"]), storable_or_none(where.get("addressLocality")),
        storable_or_none(where.get("addressRegion")),
    )  # fmt: skip


def _product(product: Thing) -> ProductFound:
    offered = product.get("offers") or []
    return ProductFound(
        str(product["sku"]), storable(product["name"]), storable_or_none((product.get("brand") or {}).get("name")),
        storable_or_none(product.get("category")), lowest(offer.get("price") for offer in offered),
        together((offer.get("inventoryLevel") or {}).get("value") for offer in offered),
    )  # fmt: skip


if os.environ.get("WEBMENUS_BASE_URL"):
    offers(NAME, partial(WebMenus, address("WEBMENUS_BASE_URL", "https://menus.example")), needs_browser=True)
