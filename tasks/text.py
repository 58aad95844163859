"""Texts of others, before they are stored."""

from __future__ import annotations

import re

#: The user and password of an address (RFC 3986, 3.2.1).
_CREDENTIALS = re.compile(r"([a-z][a-z0-9+.-]*://)[^\s/?#]*@", re.IGNORECASE)


def storable(given: str) -> str:
    """What Postgres can store: neither NUL nor half a surrogate pair."""
    return given.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def storable_or_none(text: str | None) -> str | None:
    return None if text is None else storable(text)


def without_credentials(text: str) -> str:
    """A text in which addresses may stand, without the user and password of each."""
    return _CREDENTIALS.sub(r"\1", text)
