"""Check addresses of servers: an unreadable one is refused in a message that has no character of it.

If a password has special characters that are not escaped, parts of it are read as host, port or database, and errors
about those would show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import psycopg2
from kombu.utils.url import parse_url
from psycopg2.extensions import make_dsn
from sqlalchemy import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from celeriac.errors import ConfigurationError
from celeriac.settings import HOW_TO_WRITE

_POSTGRES = "postgresql://user:password@host:port/name"
_REDIS = "redis://user:password@host:port/number (rediss:// with TLS), or sentinel://host:port;… of its Sentinels"


def postgres(address: str, variable: str = "DATABASE_URL") -> URL:
    """Parse the address. Raises ConfigurationError, which names the variable."""
    scheme, is_address, server = address.partition("://")
    if not is_address or scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise ConfigurationError(f"{variable} names no Postgres: give {_POSTGRES}; {HOW_TO_WRITE}")
    url = _postgres(server)
    if url is None:
        raise ConfigurationError(f"{variable} cannot be read: give {_POSTGRES}; {HOW_TO_WRITE}")
    return url


def _postgres(server: str) -> URL | None:
    """Return the URL; None if SQLAlchemy or libpq cannot read it, or if its host, name or options have an @ as they
    read it.
    """
    try:
        url = make_url(f"postgresql+psycopg2://{server}")
        _, options = url.get_dialect()().create_connect_args(url)
        dsn = make_dsn(**options)
    except (SQLAlchemyError, ValueError, psycopg2.Error):
        return None
    place = server if url.username is None else server.partition("@")[2]
    place, _, query = place.partition("?")
    is_whole = "@" not in place and all("=" in part for part in query.split("&") if part)
    return url if is_whole and not _has_controls(server + dsn) else None


def redis(name: str, address: str) -> Mapping[str, Any]:
    """Return the parts of an address of Redis or of a Sentinel, as kombu names them.

    Raises ConfigurationError, which names the variable or setting.
    """
    parts = _redis(address)
    if parts is None:
        raise ConfigurationError(f"{name} cannot be read: give {_REDIS}; {HOW_TO_WRITE}")
    return parts


def _redis(address: str) -> Mapping[str, Any] | None:
    try:
        address.encode()
        split = urlsplit(address)
        parts: Mapping[str, Any] = parse_url(address)
    except (ValueError, KeyError):
        return None
    is_whole = "@" not in split.path + split.query + split.fragment
    return parts if is_whole and "://" in address and not _has_controls(f"{address}{parts['password']}") else None


def _has_controls(text: str) -> bool:
    """Return whether the text has characters that some readers of addresses omit, or stop at."""
    return any(character < " " or character == "\x7f" for character in text)
