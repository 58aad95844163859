"""Where stores have their menus: what a platform offers, and which there are.

PlatformError
├── PlatformUnavailable    timeout, reset, 5xx, unreadable answer: try again later
├── PlatformRateLimited    too many requests: try again after `retry_after` seconds
└── PlatformRefused        any other answer that is no success: repeating it changes nothing
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Protocol

from tasks.pace import RateLimited


class PlatformError(Exception):
    """The platform did not tell what was asked."""


class PlatformUnavailable(PlatformError):
    """No usable answer. Worth a retry."""


class PlatformRateLimited(PlatformError, RateLimited):
    service = "the platform"


class PlatformRefused(PlatformError):
    """Permanent."""


@dataclass(frozen=True)
class StoreFound:
    """`menu_url` is what identifies a store before its platform id is known. `state`: a code such as AZ."""

    menu_url: str
    name: str
    city: str | None
    state: str | None


@dataclass(frozen=True)
class ProductFound:
    """`price`: the lowest of its options, in dollars; `stock`: of all options. None where the menu does not say."""

    platform_product_id: str
    name: str
    brand: str | None
    category: str | None
    price: Decimal | None
    stock: int | None


class Platform(Protocol):
    """Asks over the network, never retries (the task system does), and raises PlatformError."""

    def stores(self, state: str | None) -> Iterator[StoreFound]:
        """The open stores of a state, or all."""

    def resolve(self, menu_url: str) -> str | None:
        """The platform's id of the store with this menu; None if there is none."""

    def products(self, platform_dispensary_id: str) -> Iterator[ProductFound]:
        """All that is on the store's menu."""


#: Dollars and pieces that are no price and no stock any more; what is below fits NUMERIC(10, 2) and INTEGER.
NO_PRICE, NO_STOCK = 10**8 - 1, 10**9


def lowest(prices: Iterable[Any]) -> Decimal | None:
    """Of a product's options; None if none of them has one. A number that is no price is passed over."""
    return min((price for price in _numbers(prices, NO_PRICE) if price >= 0), default=None)


def together(stock: Iterable[Any]) -> int | None:
    """Of all a product's options, in whole pieces; None if none of them says, or if it is no stock together."""
    told = [math.floor(number) for number in _numbers(stock, NO_STOCK)]
    return max(0, sum(told)) if told and sum(told) < NO_STOCK else None


def _numbers(told: Iterable[Any], below: int) -> Iterator[Decimal]:
    given = (Decimal(str(number)) for number in told if number is not None)
    return (number for number in given if number.is_finite() and abs(number) < below)


@contextmanager
def expecting(what: str) -> Iterator[None]:
    """An answer of another shape than `what` is no usable answer."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration) as error:
        raise PlatformUnavailable(f"it did not answer with {what}: {error!r}") from error


#: By name, how to make a process's client.
PLATFORMS: dict[str, Callable[[], Platform]] = {}

#: Those whose menus only a browser can read.
WITH_BROWSER: set[str] = set()


def offers(name: str, make: Callable[[], Platform], *, needs_browser: bool = False) -> None:
    """Adds a platform."""
    PLATFORMS[name] = make
    if needs_browser:
        WITH_BROWSER.add(name)


def client_of(name: str) -> Platform:
    """This process's client: its connections and its pace serve every task that runs here. Raises PlatformRefused."""
    if name not in PLATFORMS:
        raise PlatformRefused(f"there is no platform {name!r}; there are: {', '.join(sorted(PLATFORMS))}")
    return _client(name, os.getpid())


@cache
def _client(name: str, _pid: int) -> Platform:
    return PLATFORMS[name]()
