"""A browser task's visit: a fresh proxy, a fresh identity, a preflight, the work, and all of it closed again.

    take a proxy ─▶ open a context ─▶ preflight: is the proxy's address what the outside sees? ─▶ work ─▶ close
          ▲                                        │ no: the proxy rests
          └────────────────────────────────────────┘ at most PREFLIGHTS times

The proxy goes back when its context is closed, not before: an interrupted task's browser is still about its page. What
a killed process has is free again when its lease runs out.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import TypeVar

import httpx

from tasks import browser
from tasks.app import app
from tasks.chromium import BrowserEnded, Chromium, NoBrowser, PageFailed, PageRefused, Pages, find
from tasks.environment import address, positive
from tasks.pace import NotNow
from tasks.proxies import Pool, Proxy

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Pages], T]

#: How many proxies a task tries.
PREFLIGHTS = 3

#: What a site answers whom it wants no more of.
TURNED_AWAY = (403, 429)

#: Seconds between two looks for a browser where there is none.
BROWSER_LOOK_EVERY = 300.0

#: Seconds by which a proxy's lease outlasts the visit: closing takes its time.
CLOSING = 15.0


class VisitFailed(Exception):
    """There was none; another attempt may go better."""


class NoBrowserHere(NotNow):
    retry_after = BROWSER_LOOK_EVERY


@dataclass(frozen=True)
class VisitSettings:
    """echo_url: tells, as text, from which address it was asked. visit_seconds: for a visit, its preflights included.
    rest_seconds: a proxy's after its first failure.
    """

    echo_url: str = "https://api.ipify.org"
    visit_seconds: float = 60.0
    rest_seconds: float = 60.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> VisitSettings:
        """Reads PROXY_* and BROWSER_VISIT_SECONDS; what is unset keeps its default. Raises ConfigurationError."""
        return cls(
            address("PROXY_ECHO_URL", cls.echo_url, environ=environ),
            positive("BROWSER_VISIT_SECONDS", cls.visit_seconds, environ=environ),
            positive("PROXY_REST_SECONDS", cls.rest_seconds, environ=environ),
        )


def visit(work: Work[T]) -> T:
    """What `work` makes of the pages it reads. Raises VisitFailed, PageFailed, NotNow, and what `work` raises."""
    settings = VisitSettings.from_env()
    try:
        program = find()
        return _visited(program, settings, work)
    except NoBrowser as missing:
        raise NoBrowserHere(f"no browser: {missing}") from missing


def _visited(program: str, settings: VisitSettings, work: Work[T]) -> T:
    give_up = time.monotonic() + settings.visit_seconds
    pool = Pool(app.database, seconds=settings.visit_seconds + CLOSING, rest=settings.rest_seconds)
    own = ""
    refused: list[str] = []
    while len(refused) < PREFLIGHTS and time.monotonic() < give_up:
        proxy = pool.take()
        if proxy is None:
            _say_once(os.getpid())
            return browser.done(program, lambda chromium: chromium.visit(None, give_up, work))
        attempt = Attempt(pool, proxy, settings.echo_url, give_up)
        own = own or attempt.own_address()
        try:
            return browser.done(program, lambda chromium: attempt.visit(chromium, own, work))  # noqa: B023 - within it
        except PreflightFailed as failed:
            refused.append(str(failed))
            logger.warning("%s", failed)
    raise VisitFailed(f"no proxy passed the preflight: {'; '.join(refused)}")


@cache
def _say_once(_pid: int) -> None:
    logger.warning("there are no proxies: browser tasks visit from this worker's own address (docs/stores.md#proxies)")


class PreflightFailed(Exception):
    """The outside cannot be reached by this proxy, or sees another address than it should."""


class Attempt:
    """A visit by one proxy."""

    def __init__(self, pool: Pool, proxy: Proxy, echo_url: str, give_up: float) -> None:
        self._pool, self._proxy, self._echo_url, self._give_up = pool, proxy, echo_url, give_up
        self._passed = False

    def own_address(self) -> str:
        """The worker's, as the outside sees it. The proxy goes back where that cannot be found out."""
        try:
            answer = httpx.get(self._echo_url, timeout=max(1.0, self._give_up - time.monotonic()))
            return address_in(answer.raise_for_status().text)
        except (httpx.HTTPError, PreflightFailed) as error:
            self._pool.give_back(self._proxy)
            raise VisitFailed(f"{self._echo_url} does not tell this worker's own address: {error}") from error
        except BaseException:
            self._pool.give_back(self._proxy)
            raise

    def visit(self, chromium: Chromium, own: str, work: Work[T]) -> T:
        """In the browser's thread, so that the proxy goes back even where the task is interrupted."""
        try:
            done = chromium.visit(self._proxy.playwrights, self._give_up, lambda pages: self._work(pages, own, work))
        except (PageFailed, PreflightFailed) as error:
            if is_to_blame(error, self._passed):
                self._pool.failed(self._proxy, str(error))
            else:
                self._pool.give_back(self._proxy)
            if self._passed or isinstance(error, BrowserEnded):
                raise
            raise PreflightFailed(f"proxy {self._proxy.name}: {error}") from error
        except BaseException:
            self._pool.give_back(self._proxy)
            raise
        self._pool.succeeded(self._proxy)
        return done

    def _work(self, pages: Pages, own: str, work: Work[T]) -> T:
        seen = address_in("".join(pages.texts(self._echo_url, "body")))
        if (wrong := what_is_wrong(seen, self._proxy.address, own)) is not None:
            raise PreflightFailed(wrong)
        self._passed = True
        return work(pages)


def is_to_blame(error: Exception, passed: bool) -> bool:
    """Whether the proxy is, for a failure before or after it passed its preflight.

    Afterwards, what the site answered is the page's own affair, unless it is how sites turn an address away.
    """
    if isinstance(error, BrowserEnded):
        return False
    return not (passed and isinstance(error, PageRefused)) or error.status in TURNED_AWAY


def address_in(text: str) -> str:
    """The address that an echo told, in its usual form. Raises PreflightFailed."""
    try:
        return str(ip_address(text.strip()))
    except ValueError as error:
        raise PreflightFailed(f"the echo told no address: {text[:100]!r}") from error


def what_is_wrong(seen: str, expected: str | None, own: str) -> str | None:
    """With the address the outside sees; None if nothing is."""
    if seen == own:
        return f"the outside sees {seen}, this worker's own address"
    if expected is not None and seen != expected:
        return f"the outside sees {seen}, not {expected}"
    return None
