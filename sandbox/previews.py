"""Pages of sites to be rendered: `/preview/<name>`, an HTML page with a picture and a script of its own.

`?status=503` answers so; `?late=5` answers after so many seconds; both are for sites that are to fail. Faults of the
whole sandbox are met by the operation `preview`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote, unquote
from zlib import crc32

from sandbox.stand_ins import Asked, Reply, Request, refusal

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ margin: 0; font-family: sans-serif; background: {colour}; color: white }}
main {{ max-width: 60rem; margin: 10vh auto; padding: 1rem }}
</style></head>
<body><main><h1>{name}</h1><img src="/preview/{path}/picture.svg" alt=""><p id="size"></p></main>
<script>document.getElementById("size").textContent = innerWidth + " x " + innerHeight</script>
</body></html>"""

PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" width="320" height="120" viewBox="0 0 320 120">
<rect width="320" height="120" rx="16" fill="white"/><circle cx="60" cy="60" r="40" fill="{colour}"/></svg>"""

#: Seconds a page is held at most.
LONGEST = 60.0


class Previews:
    """Remembers which pages were asked for, and with which cookie: each page sets one that names it."""

    name, prefix = "previews", "/preview/"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._visits: list[tuple[str, str]] = []
        self._never, self._open = threading.Event(), threading.Event()
        self._open.set()

    @property
    def visits(self) -> list[tuple[str, str]]:
        """Page and cookie of each request."""
        with self._lock:
            return list(self._visits)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No page is answered meanwhile; afterwards, all are."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def answer(self, request: Request) -> Asked | Reply:
        path = request.path.removeprefix(self.prefix)
        if request.method != "GET" or not path:
            return refusal(404, "ResourceNotExist", f"There is no {request.method} {request.path}")
        if path.endswith("/picture.svg"):
            return _picture(path)
        wanted, cookie = parse_qs(request.query), request.headers.get("Cookie") or ""
        return Asked("preview", unquote(path), lambda: self._page(path, wanted, cookie))

    def _page(self, path: str, wanted: dict[str, list[str]], cookie: str) -> Reply:
        name = unquote(path)
        with self._lock:
            self._visits.append((name, cookie))
        self._open.wait(LONGEST)
        self._never.wait(float(wanted.get("late", ["0"])[0]))
        status = int(wanted.get("status", ["200"])[0])
        html = PAGE.format(name=escape(name), path=escape(path), colour=_colour(path)).encode()
        return Reply(status, html, {"Set-Cookie": f"visited={quote(name)}; Path=/"}, "text/html; charset=utf-8")

    def environ(self, http_url: str) -> dict[str, str]:
        return {"DUDA_SITE_URL": f"{http_url}{self.prefix}%s"}

    def describe(self) -> Any:
        return dict(Counter(name for name, _ in self.visits))

    def clear(self) -> None:
        with self._lock:
            self._visits.clear()


def _picture(path: str) -> Reply:
    colour = _colour(path.removesuffix("/picture.svg"))
    return Reply(200, PICTURE.format(colour=colour).encode(), content_type="image/svg+xml")


def _colour(path: str) -> str:
    """Each site has its own."""
    return f"hsl({crc32(path.encode()) % 360} 60% 40%)"
