"""A browser task's visit: a fresh proxy, a fresh identity, a preflight, the work, and all of it closed again.

    take a proxy ─▶ open a context ─▶ preflight: is the proxy's address what the outside sees? ─▶ work ─▶ close
          ▲                                        │ no: the proxy rests
          └────────────────────────────────────────┘ at most PREFLIGHTS times

All of it happens in the browser's thread, so that a proxy goes back when its context is closed, not before: an
interrupted task's browser is still about its page. What a killed process has is free again when its lease runs out, and
so is what an interrupted one has of a browser elsewhere, which may be about its page still.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from threading import Thread
from typing import TypeVar

import httpx

from tasks import browser
from tasks.app import app
from tasks.chromium import BrowserEnded, PageFailed, PageIncomplete, PageRefused, Reader, Renders
from tasks.environment import address, positive
from tasks.proxies import Pool, Proxy
from tasks.remote_browser import RemoteBrowser

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Reader], T]

#: How many proxies a task tries.
PREFLIGHTS = 3

#: What a site answers whom it wants no more of.
TURNED_AWAY = (403, 429)

#: Seconds by which a proxy's lease outlasts the visit, which has closed its context by then: its outcome is still to be
#: written down.
TO_TELL = 15.0


class VisitFailed(Exception):
    """There was none; another attempt may go better."""


@dataclass(frozen=True)
class VisitSettings:
    """echo_url: tells, as text, from which address it was asked. visit_seconds: for a visit, its preflights included.
    preflight_seconds: for each of these. rest_seconds: a proxy's after its first failure.
    """

    echo_url: str = "https://api.ipify.org"
    visit_seconds: float = 60.0
    preflight_seconds: float = 15.0
    rest_seconds: float = 60.0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> VisitSettings:
        """Reads PROXY_* and BROWSER_VISIT_SECONDS; what is unset keeps its default. Raises ConfigurationError."""
        return cls(
            address("PROXY_ECHO_URL", cls.echo_url, environ=environ),
            positive("BROWSER_VISIT_SECONDS", cls.visit_seconds, environ=environ),
            positive("PROXY_PREFLIGHT_SECONDS", cls.preflight_seconds, environ=environ),
            positive("PROXY_REST_SECONDS", cls.rest_seconds, environ=environ),
        )

    def leave_time(self, give_up: float) -> bool:
        """Until then, for what a preflight may take, or for its share of a visit that is shorter than that."""
        return give_up - time.monotonic() >= min(self.preflight_seconds, self.visit_seconds / (PREFLIGHTS + 1))


def visit(work: Work[T]) -> T:
    """What `work` makes of the pages it reads. Raises VisitFailed, PageFailed, NotNow, and what `work` raises."""
    settings = VisitSettings.from_env()
    return browser.done(browser.found(), lambda chromium: _visited(chromium, settings, work))


def _visited(chromium: Renders, settings: VisitSettings, work: Work[T]) -> T:
    """Its time, and its proxy's lease, begin now that the browser is free for it."""
    give_up = time.monotonic() + settings.visit_seconds
    pool = Pool(app.database, seconds=settings.visit_seconds + TO_TELL, rest=settings.rest_seconds)
    own = ""
    refused: list[str] = []
    while len(refused) < PREFLIGHTS and (not refused or settings.leave_time(give_up)):
        proxy = pool.take()
        if proxy is None:
            _say_once(os.getpid())
            return chromium.visit(None, give_up, work)
        attempt = Attempt(pool, proxy, settings, give_up)
        own = own or attempt.own_address(chromium)
        try:
            return attempt.visit(chromium, own, work)
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

    def __init__(self, pool: Pool, proxy: Proxy, settings: VisitSettings, give_up: float) -> None:
        self._pool, self._proxy, self._settings, self._give_up = pool, proxy, settings, give_up
        self._passed, self._had_time = False, True

    def own_address(self, chromium: Renders) -> str:
        """That of a visit without the proxy, which goes back where it cannot be found out."""
        try:
            if isinstance(chromium, RemoteBrowser):
                return _address_of(chromium, self._settings, self._give_up)
            return own_address(self._settings, self._give_up)
        except BaseException:
            self._pool.give_back(self._proxy)
            raise

    def visit(self, chromium: Renders, own: str, work: Work[T]) -> T:
        try:
            done = chromium.visit(self._proxy.for_playwright, self._give_up, lambda pages: self._work(pages, own, work))
        except (PageFailed, PreflightFailed) as error:
            if is_to_blame(error, self._passed, self._had_time):
                self._pool.failed(self._proxy, str(error))
            else:
                self._pool.give_back(self._proxy)
            if self._passed or isinstance(error, BrowserEnded):
                raise
            raise PreflightFailed(f"proxy {self._proxy.server}: {error}") from error
        except Exception:
            self._pool.give_back(self._proxy)
            raise
        self._pool.succeeded(self._proxy)
        return done

    def _work(self, pages: Reader, own: str, work: Work[T]) -> T:
        self._had_time = self._settings.leave_time(self._give_up)
        told = pages.texts(self._settings.echo_url, "body", seconds=self._settings.preflight_seconds)
        if (wrong := what_is_wrong(address_in("".join(told)), self._proxy.address, own)) is not None:
            raise PreflightFailed(wrong)
        self._passed, self._had_time = True, self._settings.leave_time(self._give_up)
        return work(pages)


def own_address(settings: VisitSettings, give_up: float = math.inf) -> str:
    """The worker's, as the outside sees it, by none of the proxies the environment may name. Raises VisitFailed.

    It takes as long as a preflight may at most, and not beyond `give_up`.
    """
    seconds = max(0.001, min(settings.preflight_seconds, give_up - time.monotonic()))
    try:
        with httpx.Client(timeout=seconds, trust_env=False) as client:
            return address_in(text_of(client, settings.echo_url, seconds))
    except (httpx.HTTPError, PreflightFailed) as error:
        raise VisitFailed(f"{settings.echo_url} does not tell this worker's own address: {error}") from error


def _address_of(browser: RemoteBrowser, settings: VisitSettings, give_up: float) -> str:
    """As own_address, of a browser elsewhere: another machine may have another. Raises VisitFailed, BrowserEnded."""
    give_up = min(give_up, time.monotonic() + settings.preflight_seconds)
    try:
        return address_in("".join(browser.visit(None, give_up, lambda pages: pages.texts(settings.echo_url, "body"))))
    except BrowserEnded:
        raise
    except (PageFailed, PreflightFailed) as error:
        raise VisitFailed(f"{settings.echo_url} does not tell the browser's own address: {error}") from error


def text_of(client: httpx.Client, url: str, seconds: float) -> str:
    """Each read has a time limit of httpx's; all of them together have this one. Raises HTTPError.

    Whoever closes the client then ends what it is still at.
    """
    outcome: Future[str] = Future()

    def ask() -> None:
        try:
            outcome.set_result(client.get(url, timeout=seconds).raise_for_status().text)
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=ask, name="seen address", daemon=True).start()
    try:
        return outcome.result(seconds)
    except (TimeoutError, httpx.TimeoutException) as late:
        raise httpx.ReadTimeout(f"no answer within {seconds:g} s") from late


def is_to_blame(error: Exception, passed: bool, had_time: bool) -> bool:
    """Whether the proxy is, for a failure before or after it passed its preflight.

    Afterwards, what the site answered is the page's own affair, unless it is how sites turn an address away. Of a proxy
    that had too little time, after others, only an answer tells anything.
    """
    if isinstance(error, BrowserEnded) or not (had_time or isinstance(error, (PageRefused, PreflightFailed))):
        return False
    if isinstance(error, PageRefused):
        return not passed or error.status in TURNED_AWAY
    return not (passed and isinstance(error, PageIncomplete))


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
