"""Menus as web pages that tell nothing to whoever does not run their scripts, and an echo of the asker's address.

A page is a shell. Its script proves that it ran (a cookie), fetches what the page is about and adds it as JSON-LD.
Every visitor leaves traces in each place a browser has (a cookie, the storage, the cache), and `visits` tells which of
them a visitor brought along: what has one here has been here before. Faults are met by the operation `page`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, unquote

from sandbox.menus import Item, Menus, Store
from sandbox.stand_ins import Asked, Reply, Request, refusal

#: What it tells of itself is the site, not the menu.
SHELL = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Menu</title><link rel="icon" href="data:,">
<script type="application/ld+json">{"@context": "https://schema.org", "@type": "WebSite", "name": "Menus"}</script>
<script type="application/ld+json">["no object"]</script><script type="application/ld+json">{no JSON</script></head>
<body><noscript>This menu needs JavaScript.</noscript><script src="/webmenus/menu.js"></script></body></html>"""

SCRIPT = b"""
const visitor = document.cookie.match(/visitor=(\\w+)/)[1];
document.cookie = "proof=" + [...visitor].reverse().join("") + "; path=/";
const stored = localStorage.getItem("visitor") || "";
localStorage.setItem("visitor", visitor);
const about = location.pathname.replace("/webmenus/", "/webmenus/data/") + location.search;
fetch(about, {headers: {"X-Stored": stored}}).then(answer => answer.text()).then(text => {
  const told = document.createElement("script");
  told.type = "application/ld+json";
  told.textContent = text;
  document.head.append(told);
});
"""

#: Seconds a page is held at most.
LONGEST = 60.0

HTML = "text/html; charset=utf-8"


@dataclass
class Visit:
    """One page, from its request until it was told what it is about. `cookie`, `stored`: what the visitor had before.

    `asked_for_script`: it had none in its cache.
    """

    path: str
    address: str
    agent: str
    cookie: str
    began: float
    stored: str = ""
    asked_for_script: bool = False
    ended: float | None = None


class WebMenus(Menus):
    """The same stores as Menus', on pages."""

    name, prefix = "webmenus", "/webmenus/"

    def __init__(self) -> None:
        super().__init__()
        self._open = threading.Event()
        self._open.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """No store's page is told what it is about meanwhile: its visit goes on."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def clear(self) -> None:
        super().clear()
        with self._lock:
            self._visits: dict[str, Visit] = {}

    @property
    def visits(self) -> list[Visit]:
        with self._lock:
            return list(self._visits.values())

    def environ(self, http_url: str) -> dict[str, str]:
        return {"WEBMENUS_BASE_URL": f"{http_url}{self.prefix.rstrip('/')}"}

    def answer(self, request: Request) -> Asked | Reply:
        path = request.path.removeprefix(self.prefix)
        if request.method != "GET":
            return refusal(405, "MethodNotAllowed", "Pages are read")
        if path == "menu.js":
            return self._script(request)
        if path.startswith("data/"):
            return self._data(path.removeprefix("data/"), request)
        return Asked("page", path, lambda: self._page(path, request))

    def _page(self, path: str, request: Request) -> Reply:
        with self._lock:
            if self._about(path, {}, "") is None:
                return refusal(404, "ResourceNotExist", f"There is no page {path}")
            visitor = f"v{len(self._visits)}"
            agent, cookie = request.headers.get("User-Agent") or "", request.headers.get("Cookie") or ""
            self._visits[visitor] = Visit(path, request.client, agent, cookie, time.monotonic())
        return Reply(200, SHELL, {"Set-Cookie": f"visitor={visitor}; Path=/"}, HTML)

    def _script(self, request: Request) -> Reply:
        with self._lock:
            self._visit_of(request).asked_for_script = True
        return Reply(200, SCRIPT, {"Cache-Control": "max-age=3600"}, "text/javascript; charset=utf-8")

    def _data(self, path: str, request: Request) -> Reply:
        cookies = SimpleCookie(request.headers.get("Cookie"))
        visitor, proof = (cookies[name].value if name in cookies else "" for name in ("visitor", "proof"))
        if not visitor or proof != visitor[::-1]:
            return refusal(403, "NotABrowser", "Run the page's script")
        if path != "stores":
            self._open.wait(LONGEST)
        with self._lock:
            visit = self._visits[visitor]
            visit.stored, visit.ended = request.headers.get("X-Stored") or "", time.monotonic()
            about = self._about(path, parse_qs(request.query), f"http://{request.headers['Host']}")
        return Reply(200, about)

    def _visit_of(self, request: Request) -> Visit:
        visitor = SimpleCookie(request.headers.get("Cookie"))["visitor"].value
        return self._visits[visitor]

    def _about(self, path: str, query: dict[str, list[str]], http_url: str) -> dict[str, Any] | None:
        kind, _, name = unquote(path).partition("/")
        if kind == "stores" and not name:
            state = query.get("state", [None])[0]
            return _listed([_store(s, http_url) for s in self._stores.values() if state in (None, s.state)])
        if kind == "stores" and name in self._stores:
            return _store(self._stores[name], http_url)
        found = [store for store in self._stores.values() if kind == "menus" and store.id == name]
        return _listed([_product(item) for item in found[0].items.values()]) if found else None


class Echo:
    """Tells who asks from which address it did."""

    name, prefix = "echo", "/echo"

    def answer(self, request: Request) -> Asked | Reply:
        return Reply(200, request.client.encode(), content_type="text/plain")

    def environ(self, http_url: str) -> dict[str, str]:
        return {"PROXY_ECHO_URL": f"{http_url}{self.prefix}"}

    def describe(self) -> Any:
        return {}

    def clear(self) -> None:
        pass


def _listed(things: list[dict[str, Any]]) -> dict[str, Any]:
    elements = [{"@type": "ListItem", "position": n, "item": thing} for n, thing in enumerate(things, 1)]
    return {"@context": "https://schema.org", "@type": "ItemList", "itemListElement": elements}


def _store(store: Store, http_url: str) -> dict[str, Any]:
    document = store.document()
    where = {"@type": "PostalAddress", "addressLocality": "Phoenix", "addressRegion": store.state}
    url = f"{http_url}/webmenus/stores/{store.slug}"
    return {"@type": "Store", "identifier": store.id, "url": url, "name": document["name"], "address": where}


def _product(item: Item) -> dict[str, Any]:
    offers = [
        {"@type": "Offer", "price": price, "inventoryLevel": {"@type": "QuantitativeValue", "value": stock}}
        for price, stock in zip(item.prices, item.stock, strict=True)
    ]
    brand = {"@type": "Brand", "name": item.brand}
    return {
        "@type": "Product", "sku": item.id, "name": item.name, "brand": brand, "category": item.kind, "offers": offers
    }  # fmt: skip
