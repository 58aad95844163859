"""The address of Redis or its Sentinels. `REDIS_URL` and Celery's configuration have to name the same server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from celery.app.utils import Settings as Configuration
from kombu.utils.url import maybe_sanitize_url

from celeriac.errors import ConfigurationError
from celeriac.seam import no_redis, sentinels
from celeriac.seam.configuration import by_user
from celeriac.settings import HOW_TO_WRITE, NO_REDIS, Settings
from celeriac.store import addresses

_RIGHT = (
    "give one of redis://host:port/number (rediss:// with TLS), its sentinel://host:port;…, or REDIS_URL instead; "
    + HOW_TO_WRITE
)
_HERE = {"localhost": "127.0.0.1", None: "127.0.0.1", "": "127.0.0.1"}


def url_of(conf: Configuration, settings: Settings) -> str | None:
    """Return the URL, None if none is named.

    Raises ConfigurationError for a broker other than Redis, for two URLs that disagree, and for Sentinels without a
    master's name.
    """
    if not settings.has_redis:
        return _no_redis(conf)
    url = _url(dict(_named(conf, settings.redis_url)))
    if sentinels.are_named(url):
        sentinels.master(conf.broker_transport_options, settings)
    elif settings.redis_master:
        raise ConfigurationError(
            f"CELERIAC_REDIS_MASTER={settings.redis_master!r} is a name among Sentinels: give theirs in REDIS_URL, as "
            "sentinel://host:port;sentinel://host:port"
        )
    return url


def _no_redis(conf: Configuration) -> str:
    if named := dict(_named(conf, None)):
        raise ConfigurationError(
            f"REDIS_URL=none says that there is no Redis, and {next(iter(named))} names a broker: give one of them"
        )
    return NO_REDIS


def _url(named: dict[str, object]) -> str | None:
    servers = {name: _server(name, url) for name, url in named.items()}
    for name, server in servers.items():
        first = next(iter(servers))
        if server != servers[first]:
            raise ConfigurationError(
                f"{first}={_sanitized(named[first])} and {name}={_sanitized(named[name])} disagree: there is one "
                "Redis, for tickets; give one of them, or both the same"
            )
    return next((str(url) for url in named.values()), None)


#: Celery's settings that name a broker.
BROKERS = ("broker_url", "broker_read_url", "broker_write_url", "broker_host")


def is_named(conf: Configuration) -> bool:
    """Return whether Celery's configuration names a broker."""
    return next(_named(conf, None), None) is not None


def _named(conf: Configuration, redis_url: str | None) -> Iterator[tuple[str, object]]:
    said = by_user(conf)
    if redis_url:
        yield "REDIS_URL", redis_url
    for name in BROKERS:
        variable = f"CELERY_{name.upper()}"
        if os.environ.get(variable):
            yield variable, os.environ[variable]
        elif url := said.get(name):
            yield name, url


def _server(name: str, url: object) -> tuple[object, ...]:
    """Return what two URLs of one server, or of its Sentinels, have in common."""
    if sentinels.are_named(url):
        return sentinels.identity(name, url)
    every = [addresses.redis(name, one) for one in url.split(";")] if isinstance(url, str) else []
    if len(every) != 1 or every[0]["transport"] not in ("redis", "rediss"):
        raise ConfigurationError(f"{name}={_sanitized(url)}: the broker is one Redis or Valkey; {_RIGHT}")
    (parts,) = every
    host = _HERE.get(parts["hostname"], parts["hostname"])
    number = (parts["virtual_host"] or "").strip("/") or "0"
    return parts["transport"], host, parts["port"] or 6379, number, parts["userid"], parts["password"]


def address(
    url: Any, options: Mapping[str, Any], asked: Mapping[str, Any] | None, settings: Settings
) -> tuple[Any, dict[str, Any]]:
    """Return a connection's URL and options: the user's, overridden by those requested for this one."""
    if sentinels.are_named(url):
        return sentinels.address(url, options, asked or {}, settings)
    if url == NO_REDIS:
        return no_redis.ADDRESS, {}
    return url, {**options, **(asked or {})}


def _sanitized(url: object) -> str:
    """Return the URL without its password.

    Of several addresses nothing is shown: a password may be split among them.
    """
    if sentinels.are_named(url):
        return repr(sentinels.sanitized(url))
    return repr(maybe_sanitize_url(url)) if isinstance(url, str) and ";" not in url else "…"
