"""A task's calls of an API, as one visitor whom nothing ties to any other: what `visits` is, without a browser.

    take a proxy ─▶ preflight: is the proxy's address what the outside sees? ─▶ calls ─▶ close, give the proxy back
          ▲                                  │ no: the proxy rests
          └──────────────────────────────────┘ at most PREFLIGHTS times

Each visitor has a client of its own: no cookie and no connection of another's, and the name of an ordinary browser. Its
proxy's lease begins anew with each call: what a killed process has is free again when the lease of its last call runs
out. A SOCKS proxy serves browsers alone: where there are no others, nobody calls.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import httpx

from tasks.app import app
from tasks.chromium import agents
from tasks.proxies import Pool, Proxy
from tasks.visits import (
    PREFLIGHTS,
    TO_TELL,
    TURNED_AWAY,
    PreflightFailed,
    VisitFailed,
    VisitSettings,
    address_in,
    own_address,
    text_of,
    what_is_wrong,
)

#: The version of Chromium that visitors are about.
VERSION = "142"

#: Proxies that a client of HTTP can go by.
SCHEMES = "^https?://"

Pools = Callable[[VisitSettings], Pool]


def of_app(settings: VisitSettings) -> Pool:
    """The application's."""
    seconds = settings.visit_seconds + TO_TELL
    return Pool(app.database, seconds=seconds, rest=settings.rest_seconds, schemes=SCHEMES)


@cache
def _tls() -> ssl.SSLContext:
    """What trusts whom; it ties no two connections together."""
    return httpx.create_ssl_context()


class Visitor:
    """`proxy`: None, where there is none in the pool, or no pool."""

    def __init__(self, timeout: httpx.Timeout, pool: Pool | None, proxy: Proxy | None) -> None:
        self._pool, self._proxy = pool, proxy
        self._blame = ""
        headers = {"Accept": "application/json", "User-Agent": random.choice(agents(VERSION))}
        address = None if proxy is None else proxy.url
        self._client = httpx.Client(
            timeout=timeout, headers=headers, verify=_tls(), proxy=address, trust_env=proxy is None
        )

    def post(self, url: str, document: Any) -> httpx.Response:
        """Raises httpx.RequestError; and VisitFailed where the proxy may be another's by now."""
        if self._pool is not None and self._proxy is not None and not self._pool.prolong(self._proxy):
            raise VisitFailed(f"the lease of proxy {self._proxy.server} has run out")
        try:
            answer = self._client.post(url, json=document)
        except httpx.RequestError as error:
            self._blame = f"{type(error).__name__}: {error}"
            raise
        if self._proxy is not None and answer.status_code == httpx.codes.PROXY_AUTHENTICATION_REQUIRED:
            # With https the client says so itself: there the proxy is asked before the site.
            self._blame = f"the proxy answered {answer.status_code} {answer.reason_phrase}"
            raise httpx.ProxyError(self._blame, request=answer.request)
        if answer.status_code in TURNED_AWAY:
            self._blame = f"{url} answered {answer.status_code}"
        return answer

    def preflight(self, settings: VisitSettings, own: str, give_up: float) -> None:
        """Raises PreflightFailed: the outside cannot be reached by its proxy, or sees an address that it should not.

        A proxy that had too little time, after others, is not to blame for giving no answer.
        """
        expected = None if self._proxy is None else self._proxy.address
        had_time = settings.leave_time(give_up)
        seconds = max(0.001, min(settings.preflight_seconds, give_up - time.monotonic()))
        try:
            wrong = what_is_wrong(address_in(text_of(self._client, settings.echo_url, seconds)), expected, own)
        except httpx.HTTPError as error:
            wrong = f"{type(error).__name__}: {error}"
            self._blame = wrong if had_time or isinstance(error, httpx.HTTPStatusError) else ""
            raise PreflightFailed(wrong) from error
        except PreflightFailed as failed:
            wrong = str(failed)
        if wrong is not None:
            self._blame = wrong
            raise PreflightFailed(wrong)

    def leave(self, *, is_well: bool) -> None:
        """Closes its client, and gives back its proxy, which rests if a failure was its own."""
        with suppress(OSError):
            self._client.close()
        if self._pool is None or self._proxy is None:
            return
        if self._blame:
            self._pool.failed(self._proxy, self._blame)
        elif is_well:
            self._pool.succeeded(self._proxy)
        else:
            self._pool.give_back(self._proxy)


@contextmanager
def calling(timeout: httpx.Timeout, pools: Pools | None) -> Iterator[Visitor]:
    """One visitor, who goes when it ends. Raises VisitFailed, and NoProxyFree. Without `pools` none has a proxy."""
    visitor = _admitted(timeout, pools)
    is_well = False
    try:
        yield visitor
        is_well = True
    finally:
        visitor.leave(is_well=is_well)


def _admitted(timeout: httpx.Timeout, pools: Pools | None) -> Visitor:
    """One that passed its preflight, or has no proxy."""
    settings = VisitSettings.from_env()
    give_up = time.monotonic() + settings.visit_seconds
    pool = None if pools is None else pools(settings)
    own, refused = "", list[str]()
    while len(refused) < PREFLIGHTS and (not refused or settings.leave_time(give_up)):
        proxy = None if pool is None else pool.take()
        visitor = Visitor(timeout, pool, proxy)
        if proxy is None:
            return visitor
        passed = False
        try:
            own = own or own_address(settings, give_up)
            visitor.preflight(settings, own, give_up)
            passed = True
        except PreflightFailed as failed:
            refused.append(f"proxy {proxy.server}: {failed}")
        finally:
            if not passed:
                visitor.leave(is_well=False)
        if passed:
            return visitor
    raise VisitFailed(f"no proxy passed the preflight: {'; '.join(refused)}")
