"""Sentinels, who say which Redis is the master: `sentinel://one:26379;sentinel://two:26379/0`, as Celery has it."""

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

#: What is said of their Redis, as kombu calls it.
_OF_REDIS = ("userid", "password", "virtual_host")


def are_named(url: object) -> TypeGuard[str]:
    return isinstance(url, str) and url.startswith(SCHEME)


def identity(name: str, url: str) -> tuple[object, ...]:
    """What two URLs of the same Sentinels have in common. Raises ConfigurationError."""
    every = _parsed(name, url)
    return "sentinel", frozenset(_place(parts) for parts in every), *_access(url, every)


def address(
    url: str, options: Mapping[str, Any], asked: Mapping[str, Any], settings: Settings
) -> tuple[str, dict[str, Any]]:
    """A connection's URL and options. `asked`: what this one is asked for beside; Sentinels are waited for as briefly.

    In the URL each has their Redis' user, password and number: kombu reads them where it has connected to.
    """
    every = _parsed("the broker's address", url)
    access = _access(url, every)
    merged = {**options, **asked}
    theirs = dict.fromkeys(_TIMEOUTS, merged.get("socket_connect_timeout")) | dict(merged.get("sentinel_kwargs") or {})
    theirs |= {name: asked["socket_connect_timeout"] for name in _TIMEOUTS if "socket_connect_timeout" in asked}
    completed = ";".join(as_url("sentinel", *_place(parts), *access) for parts in every)
    return completed, merged | {"master_name": master(merged, settings), "sentinel_kwargs": theirs}


def master(options: Mapping[str, Any], settings: Settings) -> str:
    """What they call it. Raises ConfigurationError."""
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
    """Without what lets one in."""
    return ";".join(_ACCESS.sub("**@", one) for one in url.split(";") if one)


def _parsed(name: str, url: str) -> Sequence[Mapping[str, Any]]:
    """Each address; an empty one is none."""
    every = [addresses.redis(name, one) for one in url.split(";") if one]
    if any(parts["transport"] != "sentinel" for parts in every):
        right = "with Sentinels each address is one, as sentinel://host:port"
        raise ConfigurationError(f"{name}: {right}; {HOW_TO_WRITE}")
    return every


def _place(parts: Mapping[str, Any]) -> tuple[str, int]:
    return parts["hostname"] or "127.0.0.1", parts["port"] or PORT


def _access(url: str, every: Sequence[Mapping[str, Any]]) -> tuple[Any, Any, Any]:
    """User, password and number of their Redis, which any of them may say."""
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
