"""Which Redis: the one of `REDIS_URL`, or the one Celery's configuration names; they have to be one.

Or which Sentinels: `sentinel://one:26379;sentinel://two:26379/0`, as Celery writes them, and the name of their master.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from celery.app.utils import Settings as Configuration
from kombu.utils.url import as_url, maybe_sanitize_url, parse_url

from celeriac.errors import ConfigurationError
from celeriac.seam.configuration import by_user
from celeriac.settings import Settings

_SENTINEL = "sentinel://"
_RIGHT = "give one of redis://host:port/number (rediss:// with TLS), its sentinel://host:port;…, or REDIS_URL instead"
_HERE = {"localhost": "127.0.0.1", None: "127.0.0.1", "": "127.0.0.1"}


def url_of(conf: Configuration, settings: Settings) -> str | None:
    """None if nobody names one.

    Raises ConfigurationError for what is no Redis, for two that disagree, and for Sentinels without a master's name.
    """
    url = _url(dict(_named(conf, settings.redis_url)))
    if url is not None and url.startswith(_SENTINEL):
        _master(conf.broker_transport_options, settings)
    elif settings.redis_master:
        raise ConfigurationError(
            f"CELERIAC_REDIS_MASTER={settings.redis_master!r} is a name among Sentinels: give theirs in REDIS_URL, as "
            "sentinel://host:port;sentinel://host:port"
        )
    return url


def _url(named: dict[str, object]) -> str | None:
    servers = {name: _server(name, url) for name, url in named.items()}
    for name, server in servers.items():
        first = next(iter(servers))
        if server != servers[first]:
            raise ConfigurationError(
                f"{first}={told(named[first])} and {name}={told(named[name])} disagree: there is one Redis, for "
                "tickets; give one of them, or both the same"
            )
    return next((str(url) for url in named.values()), None)


#: What names a broker, in the environment and in the configuration.
BROKERS = ("broker_url", "broker_read_url", "broker_write_url", "broker_host")


def is_named(conf: Configuration) -> bool:
    """Whether Celery's configuration names a broker."""
    return next(_named(conf, None), None) is not None


def _named(conf: Configuration, redis_url: str | None) -> Iterator[tuple[str, object]]:
    said = by_user(conf)
    if redis_url:
        yield "REDIS_URL", redis_url
    for name in BROKERS:
        variable = f"CELERY_{name.upper()}"
        if os.environ.get(variable):
            yield variable, os.environ[variable]
        elif given := said.get(name):
            yield name, given


def _server(name: str, url: object) -> tuple[object, ...]:
    """What two URLs of one server, or of one set of Sentinels, have in common."""
    if isinstance(url, str) and url.startswith(_SENTINEL):
        return _sentinels(name, url)
    if not isinstance(url, str) or ";" in url or not url.startswith(("redis://", "rediss://")):
        raise ConfigurationError(f"{name}={told(url)}: the broker is one Redis or Valkey; {_RIGHT}")
    parts = parse_url(url)
    return parts["transport"], *_place(parts, 6379), *_access(parts)


def _sentinels(name: str, url: str) -> tuple[object, ...]:
    every = [parse_url(one) for one in url.split(";")]
    said = {_access(parts) for parts in every[1:] if _access(parts) != ("0", None, None)} | {_access(every[0])}
    if len(said) > 1 or any(parts["transport"] != "sentinel" for parts in every):
        raise ConfigurationError(
            f"{name}={told(url)}: these are not the Sentinels of one Redis; give each as sentinel://host:port, and "
            "the user, password and number of their Redis in the first"
        )
    return "sentinel", frozenset(_place(parts, 26379) for parts in every), *_access(every[0])


def _place(parts: Mapping[str, Any], usual: int) -> tuple[Any, Any]:
    return _HERE.get(parts["hostname"], parts["hostname"]), parts["port"] or usual


def _access(parts: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return (parts["virtual_host"] or "").strip("/") or "0", parts["userid"], parts["password"]


def _completed(url: str) -> str:
    """Each address with the first one's user, password and number: kombu reads them where it has connected to."""
    first, *rest = url.split(";")
    number, user, password = _access(parse_url(first))
    others = (_place(parse_url(one), 26379) for one in rest)
    return ";".join([first, *(as_url("sentinel", *place, user, password, number) for place in others)])


def address(url: Any, given: Mapping[str, Any], settings: Settings) -> tuple[Any, dict[str, Any]]:
    """A connection's URL and options, with what Sentinels need: they are waited for as briefly as their master is."""
    if not (isinstance(url, str) and url.startswith(_SENTINEL)):
        return url, dict(given)
    theirs, most = dict(given.get("sentinel_kwargs") or {}), given["socket_connect_timeout"]
    for name in ("socket_timeout", "socket_connect_timeout"):
        theirs[name] = min(theirs.get(name) or most, most)
    return _completed(url), dict(given) | {"master_name": _master(given, settings), "sentinel_kwargs": theirs}


def _master(options: Mapping[str, Any], settings: Settings) -> str:
    said = options.get("master_name")
    if said and settings.redis_master and said != settings.redis_master:
        raise ConfigurationError(
            f"CELERIAC_REDIS_MASTER={settings.redis_master!r} and broker_transport_options['master_name']={said!r} "
            "disagree: give one of them"
        )
    if not (name := said or settings.redis_master):
        raise ConfigurationError(
            "The broker is named by its Sentinels: say which master of theirs it is, in CELERIAC_REDIS_MASTER or "
            "broker_transport_options['master_name']"
        )
    return str(name)


def told(url: object) -> str:
    """Without passwords."""
    if not isinstance(url, str):
        return repr(maybe_sanitize_url(url))
    return repr(";".join(maybe_sanitize_url(one) for one in url.split(";")))
