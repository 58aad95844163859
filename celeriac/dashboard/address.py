"""The addresses of the dashboard's pages, relative to its root; names in them may be any text.

An address that ends in `.json` has the page's content, one that ends in `.html` the page itself. A name with such an
end, or one that browsers take for a folder (`..`), gets `.html` appended.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

from fastapi import Request

from celeriac.paths import RestOfPath as RestOfPath
from celeriac.roles.bounds import FOLDERS

JSON: Final = ".json"
PAGE: Final = ".html"


def root_of(request: Request) -> str:
    inner = within(request)
    if not inner:
        mount: str = request.scope.get("root_path", "")
        return mount.rpartition("/")[2] + "/"
    return "../" * (inner.count("/") - 1) or "./"


def within(request: Request) -> str:
    """Return the request's path below the dashboard's root, escaped as it was sent; it begins with a slash."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    mount: str = request.scope.get("root_path", "")
    return raw.partition(b"?")[0].decode("latin-1").removeprefix(mount)


def wants_json(request: Request) -> bool:
    return bool(request.scope.get("json")) or request.headers.get("accept", "").startswith("application/json")


def path_to(*parts: object) -> str:
    """Return a page's path below the dashboard's root; each part may be any text."""
    *before, last = map(str, parts)
    if last in FOLDERS or (before and last.endswith((JSON, PAGE))):
        last += PAGE
    return "/".join([quote(part, safe="@:") for part in (*before, last)])


def zone_of(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):
        return None
