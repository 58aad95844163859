"""Chromium, headless, driven by Playwright: what it is started with, and how it takes a picture of a page.

`CHROMIUM_PATH` names the program; without it, it is looked for in PATH.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tasks.environment import switch

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: It renders pages of strangers: nothing that keeps anything, talks to anybody else or needs a screen.
FLAGS = (
    "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-quic",
)  # fmt: skip

Viewports = Mapping[str, tuple[int, int]]


class NoBrowser(Exception):
    """There is none, or it does not start; the message says what to do."""


class PageFailed(Exception):
    """The page could not be rendered; another attempt may go better."""


def find(environ: Mapping[str, str] = os.environ) -> str:
    """The program. Raises NoBrowser."""
    given = environ.get("CHROMIUM_PATH")
    for name in (given,) if given else PROGRAMS:
        if found := shutil.which(name, path=environ.get("PATH")):
            return found
    where = f"CHROMIUM_PATH={given!r} is no program" if given else f"no {PROGRAMS[0]} in PATH and no CHROMIUM_PATH"
    raise NoBrowser(f"{where}: install Debian's package chromium, or name a Chromium or Chrome in CHROMIUM_PATH")


class Chromium:
    """Started at its first page. Everything in it belongs to the thread that started it."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._running: tuple[Any, Any] | None = None

    @property
    def runs(self) -> bool:
        return self._running is not None

    def pictures(self, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]:
        """A PNG of the page in each viewport (width, height), all in a context of their own: no cookie, no cache.

        `seconds` bounds all of it. Raises PageFailed or NoBrowser.
        """
        give_up = time.monotonic() + seconds
        browser = self._started()
        from playwright.sync_api import Error

        try:
            with browser.new_context(service_workers="block", accept_downloads=False) as context:
                return {name: _picture(context, url, size, give_up) for name, size in viewports.items()}
        except Error as error:
            if not browser.is_connected():
                self.stop()
            raise PageFailed(f"{url}: {error.message.splitlines()[0]}") from error

    def stop(self) -> None:
        if self._running is None:
            return
        (playwright, browser), self._running = self._running, None
        with suppress(Exception):  # What crashed cannot be closed, only forgotten.
            browser.close()
        with suppress(Exception):
            playwright.stop()

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
        try:
            browser = playwright.chromium.launch(
                executable_path=self._program, args=list(FLAGS), handle_sigint=False, handle_sigterm=False,
                handle_sighup=False, chromium_sandbox=switch("CHROMIUM_SANDBOX", default=os.geteuid() != 0),
            )  # fmt: skip
        except BaseException as error:
            playwright.stop()
            raise NoBrowser(f"{self._program} does not start: {str(error)[:500]}") from error
        self._running = playwright, browser


def _picture(context: Any, url: str, size: tuple[int, int], give_up: float) -> bytes:
    page = context.new_page()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    answer = page.goto(url, wait_until="load", timeout=_left(give_up))
    if answer is not None and answer.status >= 400:
        raise PageFailed(f"{url} answered {answer.status}")
    picture: bytes = page.screenshot(type="png", animations="disabled", timeout=_left(give_up))
    page.close()
    return picture


def _left(give_up: float) -> float:
    """Milliseconds; to Playwright, 0 would mean for ever."""
    return max(1.0, 1000 * (give_up - time.monotonic()))
