"""Chromium, headless, driven by Playwright: what it is started with, how it takes a picture of a page, how it visits.

`CHROMIUM_PATH` names the program; without it, it is looked for in PATH. It is started with an environment that tells it
nothing, in its own sandbox wherever the machine lets it have one, and behind a wall that lets it reach public addresses
only (`tasks/wall.py`).
"""

from __future__ import annotations

import logging
import math
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from threading import Timer
from typing import Any, Protocol, TypeVar

import psutil

from tasks.environment import number, switch
from tasks.pace import NotNow
from tasks.text import without_credentials
from tasks.wall import Wall, allowed_hosts

logger = logging.getLogger(__name__)

T = TypeVar("T")

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: It renders pages of strangers: nothing that keeps anything, talks to anybody else or needs a screen.
FLAGS = (
    "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic", "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)  # fmt: skip

#: All that it is told of where it runs: what a page could make it tell has no address, token or password in it.
ENVIRONMENT: dict[str, str | float | bool] = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": "/nonexistent"}

#: User, process and network namespaces, as Chromium's sandbox needs them.
_NAMESPACES = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x70000000) != 0)"

Viewports = Mapping[str, tuple[int, int]]

#: Seconds between two looks for a browser where there is none.
LOOK_EVERY = number("BROWSER_LOOK_SECONDS", 300, at_least=0.1)

#: Of a visit's time, what is left to close its context, in seconds; at most a quarter.
CLOSING = 3.0

#: Milliseconds between two looks at a page whose scripts are at work.
PAGE_LOOK_EVERY = 100.0


class NoBrowser(NotNow):
    """There is none, or it does not start; the message says what to do."""

    retry_after = LOOK_EVERY


class PageFailed(Exception):
    """The page could not be rendered; another attempt may go better."""


class PageRefused(PageFailed):
    """It was answered with an error: its status, and the header Retry-After."""

    def __init__(self, why: str, status: int, retry_after: str | None) -> None:
        super().__init__(why)
        self.status, self.retry_after = status, retry_after


class PageIncomplete(PageFailed):
    """It came, and not what was wanted of it."""

    @classmethod
    def at(cls, url: str, why: str) -> PageIncomplete:
        return cls(f"{without_credentials(url)} came without what was wanted of it: {why}")


class BrowserEnded(PageFailed):
    """The browser crashed or was killed, which says nothing about the page."""


def find(environ: Mapping[str, str] = os.environ) -> str:
    """The program. Raises NoBrowser."""
    given = environ.get("CHROMIUM_PATH")
    for name in (given,) if given else PROGRAMS:
        if found := shutil.which(name, path=environ.get("PATH")):
            return found
    where = f"CHROMIUM_PATH={given!r} is no program" if given else f"no {PROGRAMS[0]} in PATH and no CHROMIUM_PATH"
    raise NoBrowser(f"{where}: install Debian's package chromium, or name a Chromium or Chrome in CHROMIUM_PATH")


class Reader(Protocol):
    """Pages, of this process's browser or of one elsewhere."""

    def texts(
        self, url: str, selector: str, wanted: Callable[[list[str]], bool] = ..., *, seconds: float = ...
    ) -> list[str]: ...


class Renders(Protocol):
    """A browser, of this process or elsewhere."""

    def pictures(self, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]: ...

    def visit(self, proxy: Mapping[str, str] | None, give_up: float, work: Callable[[Reader], T]) -> T: ...


class Chromium:
    """Started at its first page. Everything in it belongs to the thread that started it."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._mark = f"--celeriac={uuid.uuid4().hex}"
        self._running: tuple[Any, Any, Wall] | None = None
        self._is_killed = False

    @property
    def runs(self) -> bool:
        return self._running is not None

    def pictures(self, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]:
        """A PNG of the page in each viewport (width, height), all in a context of their own: no cookie, no cache.

        `seconds` bounds it, and CLOSING beyond that what Playwright knows no limit for. Raises PageFailed or NoBrowser.
        """
        give_up = time.monotonic() + seconds
        with self._killed_after(seconds + CLOSING), self._walled(), self._context(url) as context:
            return {name: _picture(context, url, size, give_up) for name, size in viewports.items()}

    def visit(self, proxy: Mapping[str, str] | None, give_up: float, work: Callable[[Reader], T]) -> T:
        """What `work` makes of pages it reads as one visitor, whom nothing ties to any other: a context of their own.

        proxy: server, username, password, as Playwright has them, by which all is reached; None: directly, within the
        wall. `give_up`, on the monotonic clock, bounds all of it: a browser that is not through by then is killed.
        Raises PageFailed or NoBrowser, and what `work` raises.
        """
        left = give_up - time.monotonic()
        with self._killed_after(left):
            agent = random.choice(agents(self._started().version))
            with self._walled(), self._context("a visit", proxy=proxy, user_agent=agent) as context:
                return work(Pages(context, give_up - min(CLOSING, left / 4)))

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        """Playwright knows no time limit for opening or reading a page and closing it, and a page may never rest."""
        if self._is_killed:  # as the order before ended by itself
            self.stop()
        timer = Timer(max(0.0, seconds), self.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def kill(self) -> None:
        """By its mark, beside other browsers of this process; and its parent, Playwright's driver.

        A call whose browser ends at the wrong moment waits for ever, but not one whose driver does.
        """
        self._is_killed = True
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # one that has ended
                if self._mark in process.cmdline() and (driver := process.parent()) is not None:
                    for one in (driver, *driver.children(recursive=True)):
                        _end(one)

    @contextmanager
    def _walled(self) -> Iterator[None]:
        """A page that fails, where the wall refused an address, fails for that."""
        self._started()
        wall = self._running[2] if self._running else None
        if wall is not None:
            wall.refused.clear()
        try:
            yield
        except BrowserEnded:
            raise
        except PageFailed as error:
            if wall is not None and wall.refused:
                raise PageFailed(f"{error}: {wall.refused[0]}") from error
            raise

    @contextmanager
    def _context(self, of: str, **options: Any) -> Iterator[Any]:
        """Cookies, storage and cache of its own, gone at its end."""
        browser = self._started()
        from playwright.sync_api import Error

        try:
            with browser.new_context(service_workers="block", accept_downloads=False, **options) as context:
                yield context
        except Error as error:
            kind = PageFailed
            if self._is_killed or not browser.is_connected():
                self.stop()
                kind = BrowserEnded
            raise kind(f"{without_credentials(of)}: {_first_line(error)}") from error

    def stop(self) -> None:
        if self._running is None:
            return
        (playwright, browser, wall), self._running = self._running, None
        with suppress(Exception):  # What crashed cannot be closed, only forgotten.
            browser.close()
        with suppress(Exception):
            playwright.stop()
        wall.close()

    def _started(self) -> Any:
        if self._running is None:
            try:
                from playwright.sync_api import sync_playwright
            except ImportError as error:
                raise NoBrowser("the Python package playwright is missing: install the extra `systems`") from error
            self._launch(sync_playwright().start())
        assert self._running
        return self._running[1]

    def _launch(self, playwright: Any) -> None:
        wall = Wall(allowed_hosts())
        try:
            browser = playwright.chromium.launch(
                executable_path=self._program, args=[*FLAGS, self._mark], handle_sigint=False, handle_sigterm=False,
                handle_sighup=False, chromium_sandbox=switch("CHROMIUM_SANDBOX", default=has_sandbox()),
                env=ENVIRONMENT, proxy={"server": wall.address},
            )  # fmt: skip
        except BaseException as error:
            playwright.stop()
            wall.close()
            raise NoBrowser(f"{self._program} does not start: {str(error)[:500]}") from error
        self._running, self._is_killed = (playwright, browser, wall), False


@cache
def has_sandbox() -> bool:
    """Whether Chromium can have its own: this user may make namespaces, and is not root, as whom it refuses to."""
    made = subprocess.run([sys.executable, "-c", _NAMESPACES], check=False, capture_output=True)
    if os.geteuid() != 0 and made.returncode == 0:
        return True
    logger.warning(
        "Chromium runs without its own sandbox, as %s: docs/thumbnails.md#what-a-page-may-reach",
        "root" if os.geteuid() == 0 else "this machine lets it make no user namespaces",
    )
    return False


class Pages:
    """What a visitor reads, page after page, in one tab."""

    def __init__(self, context: Any, give_up: float) -> None:
        self._tab, self._give_up = context.new_page(), give_up

    def texts(
        self, url: str, selector: str, wanted: Callable[[list[str]], bool] = bool, *, seconds: float = math.inf
    ) -> list[str]:
        """What all elements of the page with this CSS selector say, once that is what is `wanted`: any, by default.

        `seconds` bounds it, besides the visit's own end. Raises PageFailed: PageIncomplete once the page has come.
        """
        give_up = min(self._give_up, time.monotonic() + seconds)
        _expect_success(url, self._tab.goto(url, wait_until="commit", timeout=_left(give_up)))
        with self._come(url):
            while not wanted(texts := self._told(selector, give_up)):
                if time.monotonic() >= give_up:
                    raise PageIncomplete.at(url, f"{len(texts)} elements {selector}, and none of the kind")
                self._tab.wait_for_timeout(PAGE_LOOK_EVERY)
        return texts

    def _told(self, selector: str, give_up: float) -> list[str]:
        """Waits first, which has a time limit as reading has none: a page whose scripts never rest answers neither."""
        self._tab.wait_for_selector(selector, state="attached", timeout=_left(give_up))
        texts: list[str] = self._tab.eval_on_selector_all(selector, "all => all.map(one => one.textContent)")
        return texts

    @contextmanager
    def _come(self, url: str) -> Iterator[None]:
        from playwright.sync_api import Error

        try:
            yield
        except Error as error:
            if not self._tab.context.browser.is_connected():
                raise
            raise PageIncomplete.at(url, _first_line(error)) from error


def _end(process: psutil.Process) -> None:
    if process.pid != os.getpid():
        with suppress(psutil.Error):
            process.kill()


def _first_line(error: Any) -> str:
    return without_credentials(str(error.message).partition("\n")[0])


def agents(version: str) -> list[str]:
    """What Chromiums of about this version call themselves on the usual systems; none says that it is headless."""
    newest = int(version.partition(".")[0])
    systems = ("Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7", "X11; Linux x86_64")
    return [
        f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Safari/537.36"
        for system in systems
        for major in range(newest - 2, newest + 1)
    ]


def _picture(context: Any, url: str, size: tuple[int, int], give_up: float) -> bytes:
    page = context.new_page()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    _expect_success(url, page.goto(url, wait_until="load", timeout=_left(give_up)))
    picture: bytes = page.screenshot(type="png", animations="disabled", timeout=_left(give_up))
    page.close()
    return picture


def _expect_success(url: str, answer: Any) -> None:
    if answer is not None and answer.status >= 400:
        why = f"{without_credentials(url)} answered {answer.status}"
        raise PageRefused(why, answer.status, answer.headers.get("retry-after"))


def _left(give_up: float) -> float:
    """Milliseconds; to Playwright, 0 would mean for ever."""
    return max(1.0, 1000 * (give_up - time.monotonic()))
