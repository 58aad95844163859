"""The address of a page relative to the dashboard's root, and its time zone."""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo

from fastapi import Request


def root_of(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    mount: str = request.scope.get("root_path", "")
    inner = raw.partition(b"?")[0].decode("latin-1").removeprefix(mount)
    if not inner:
        return mount.rpartition("/")[2] + "/"
    return "../" * (inner.count("/") - 1) or "./"


def zone_of(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):
        return None
