"""Addresses of Sentinels, which name the master: `sentinel://one:26379;sentinel://two:26379/0`, as in Celery."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from kombu.utils.url import as_url

from celeriac.errors import ConfigurationError
from celeriac.settings import HOW_TO_WRITE, Settings
from celeriac.store import addresses

SCHEME, PORT = "sentinel://", 26379

_ACCESS = re.compile(r"(?<=://).*@")

_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")

#: Parts of the Redis' address, by kombu's names.
_OF_REDIS = ("userid", "password", "virtual_host")


def are_named(url: object) -> TypeGuard[str]:
    return isinstance(url, str) and url.startswith(SCHEME)


def identity(name: str, url: str) -> tuple[object, ...]:
    """Return what two URLs of the same Sentinels have in common. Raises ConfigurationError."""
    every = _parsed(name, url)
    return "sentinel", frozenset(_place(parts) for parts in every), *_access(url, every)


def address(
    url: str, options: Mapping[str, Any], asked: Mapping[str, Any], settings: Settings
) -> tuple[str, dict[str, Any]]:
    """Return a connection's URL and options. `asked`: options for this one; the Sentinels get the same timeouts.

    Each address in the URL gets the user, password and number of Redis: kombu reads them from the address it uses.
    """
    every = _parsed("the broker's address", url)
    access = _access(url, every)
    merged = {**options, **asked}
    theirs = dict.fromkeys(_TIMEOUTS, merged.get("socket_connect_timeout")) | dict(merged.get("sentinel_kwargs") or {})
    theirs |= {name: asked["socket_connect_timeout"] for name in _TIMEOUTS if "socket_connect_timeout" in asked}
    completed = ";".join(as_url("sentinel", *_place(parts), *access) for parts in every)
    return completed, merged | {"master_name": master(merged, settings), "sentinel_kwargs": theirs}


def master(options: Mapping[str, Any], settings: Settings) -> str:
    """Return the Sentinels' name for the master. Raises ConfigurationError."""
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


def sanitized(url: str) -> str:
    """Return the URL without users and passwords."""
    return ";".join(_ACCESS.sub("**@", one) for one in url.split(";") if one)


def _parsed(name: str, url: str) -> Sequence[Mapping[str, Any]]:
    """Return each address parsed; empty ones are left out."""
    every = [addresses.redis(name, one) for one in url.split(";") if one]
    if any(parts["transport"] != "sentinel" for parts in every):
        right = "with Sentinels each address is one, as sentinel://host:port"
        raise ConfigurationError(f"{name}: {right}; {HOW_TO_WRITE}")
    return every


def _place(parts: Mapping[str, Any]) -> tuple[str, int]:
    return parts["hostname"] or "127.0.0.1", parts["port"] or PORT


def _access(url: str, every: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, Any]:
    """Return user, password and number of the Redis behind them; any of the addresses may contain these."""
    access = []
    for name in _OF_REDIS:
        said = {parts[name] for parts in every if parts[name]}
        if len(said) > 1:
            raise ConfigurationError(
                f"{sanitized(url)!r}: user, password and number are of the one Redis behind these Sentinels, and differ"
            )
        access.append(said.pop() if said else None)
    user, password, number = access
    return user, password, (number or "").strip("/") or "0"
