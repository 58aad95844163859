"""Texts of others, before they are stored."""

from __future__ import annotations


def storable(given: str) -> str:
    """What Postgres can store: neither NUL nor half a surrogate pair."""
    return given.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def storable_or_none(text: str | None) -> str | None:
    return None if text is None else storable(text)
