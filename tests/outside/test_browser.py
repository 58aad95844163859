"""Pictures of pages by a real Chromium: the sizes asked for, nothing kept between sites, and no page stops the next."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, NoReturn

import psutil
import pytest

import sandbox
from tasks import browser
from tasks.browser import Browser, Left, NoBrowser, PageFailed, Viewports, find
from tasks.chromium import BrowserEnded
from tests.processes import until

SIZES = {"wide": (640, 300), "narrow": (200, 400)}
ONE_SIZE = {"wide": (640, 300)}


class Interrupted(BaseException):
    """As a time limit or a cancellation, out of a signal."""


@pytest.fixture(scope="module")
def outside() -> Iterator[sandbox.Sandbox]:
    with sandbox.start() as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def allowed() -> Iterator[None]:
    """What is visited here is on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER_ALLOWED_HOSTS", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def browsing(chromium: str) -> Iterator[Browser]:
    browsing = Browser(chromium)
    yield browsing
    browsing.close()


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A SIGUSR2 raises in the main thread."""

    def interrupt(*_: object) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGUSR2, interrupt)
    yield
    signal.signal(signal.SIGUSR2, before)


@contextmanager
def interrupted_when(condition: Callable[[], bool], what: str) -> Iterator[None]:
    """Interrupt the block as soon as this holds, and nothing after the block."""
    is_over = Event()

    def interrupt() -> None:
        until(lambda: is_over.is_set() or condition(), what)
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGUSR2)

    thread = Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        is_over.set()
        thread.join()


def size(png: bytes) -> tuple[Any, ...]:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def chromiums() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if _name(p).startswith("chrom")]


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def pictures(browsing: Browser, url: str, sizes: Viewports, seconds: float) -> dict[str, bytes]:
    return browsing.order(lambda chromium: chromium.pictures(url, sizes, seconds)).result()


def page(outside: sandbox.Sandbox, path: str) -> str:
    return f"{outside.http_url}/preview/{path}"


def test_pictures_have_the_sizes_asked_for_and_show_the_page(browsing: Browser, outside: sandbox.Sandbox) -> None:
    anna = pictures(browsing, page(outside, "anna"), SIZES, 20)
    berta = pictures(browsing, page(outside, "berta"), SIZES, 20)
    assert {name: size(picture) for name, picture in anna.items()} == SIZES
    assert anna["wide"] != berta["wide"]
    assert anna == pictures(browsing, page(outside, "anna"), SIZES, 20)


def test_nothing_is_kept_between_two_sites(browsing: Browser, outside: sandbox.Sandbox) -> None:
    outside.previews.clear()
    for name in ("clara", "dora"):
        pictures(browsing, page(outside, name), SIZES, 20)
    visits = outside.previews.visits
    assert visits == [("clara", ""), ("clara", "visited=clara"), ("dora", ""), ("dora", "visited=dora")]


@pytest.mark.parametrize(
    ("path", "told", "patience"), [("1?status=503", "answered 503", 20), ("1?late=20", "Timeout", 1)]
)
def test_a_page_that_fails_says_why_and_the_next_one_succeeds(
    browsing: Browser, outside: sandbox.Sandbox, path: str, told: str, patience: float
) -> None:
    with pytest.raises(PageFailed, match=told):
        pictures(browsing, page(outside, path), SIZES, patience)
    assert pictures(browsing, page(outside, "1"), SIZES, 20)


@pytest.mark.parametrize(("path", "told"), [("1?status=503", "answered 503"), ("1?late=20", "Timeout")])
def test_a_failure_tells_no_password(browsing: Browser, outside: sandbox.Sandbox, path: str, told: str) -> None:
    with pytest.raises(PageFailed, match=told) as failed:
        pictures(browsing, page(outside, path).replace("://", "://anna:secret@"), SIZES, 2)
    assert "secret" not in str(failed.value)


def test_a_server_that_is_not_there_is_a_failed_page(browsing: Browser) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(PageFailed, match="answered 502"):
            pictures(browsing, f"http://127.0.0.1:{closed.getsockname()[1]}/", SIZES, 20)


def test_a_browser_that_was_killed_fails_one_page(browsing: Browser, outside: sandbox.Sandbox) -> None:
    pictures(browsing, page(outside, "1"), SIZES, 20)
    for process in chromiums():
        with suppress(psutil.NoSuchProcess):  # one takes others with it
            process.kill()
    with pytest.raises(PageFailed):
        pictures(browsing, page(outside, "1"), SIZES, 20)
    assert pictures(browsing, page(outside, "1"), SIZES, 20)


def test_a_page_that_never_rests_ends_with_its_browser(
    browsing: Browser, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Playwright has a time limit for loading and for the picture, and none for opening, resizing and closing."""
    with monkeypatch.context() as patch:
        never = "() => { for (;;) {} }"
        patch.setattr("tasks.chromium._picture", lambda context, *_: context.new_page().evaluate(never))
        with pytest.raises(BrowserEnded):
            pictures(browsing, page(outside, "1"), ONE_SIZE, 1)
    assert pictures(browsing, page(outside, "1"), ONE_SIZE, 20)


def test_a_browser_that_was_killed_between_two_orders_fails_neither(
    browsing: Browser, outside: sandbox.Sandbox
) -> None:
    assert pictures(browsing, page(outside, "1"), ONE_SIZE, 20)
    browsing.kill()
    assert pictures(browsing, page(outside, "1"), ONE_SIZE, 20)


def test_an_interrupted_caller_has_another_browser_at_once_and_the_first_ends(
    chromium: str, outside: sandbox.Sandbox, interrupted: None
) -> None:
    def is_asked_for() -> bool:
        return ("held", "") in outside.previews.visits

    with outside.previews.held(), interrupted_when(is_asked_for, "the page to be asked for"):
        browser.pictures(chromium, page(outside, "held"), SIZES, 30)
    assert browser.pictures(chromium, page(outside, "2"), SIZES, 20)
    browser._of_process.popitem()[1].close()


def test_a_browser_without_work_closes_and_starts_again(
    chromium: str, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "IDLE", 0.1)
    before = len(chromiums())
    idle = Browser(chromium)
    assert pictures(idle, page(outside, "1"), ONE_SIZE, 20)
    until(lambda: len(chromiums()) <= before, "Chromium to close")
    assert pictures(idle, page(outside, "1"), ONE_SIZE, 20)
    idle.close()


@pytest.fixture
def waiting() -> Iterator[tuple[Browser, Event]]:
    """One that waits for an event, about no page: its program is never started."""
    waiting, is_busy, go_on = Browser("/bin/false"), Event(), Event()
    waiting.order(lambda _: (is_busy.set(), go_on.wait()))
    assert is_busy.wait(10)
    yield waiting, go_on
    go_on.set()
    waiting.close()


def test_an_order_that_was_cancelled_is_skipped(waiting: tuple[Browser, Event]) -> None:
    busy, go_on = waiting
    begun: list[int] = []
    first, second, third = (busy.order(lambda _, n=n: begun.append(n)) for n in range(3))  # type: ignore[misc]
    assert second.cancel()
    go_on.set()
    third.result(10)
    assert (begun, first.done()) == ([0, 2], True)


def test_who_is_interrupted_before_its_turn_takes_the_browser_from_nobody(
    waiting: tuple[Browser, Event], monkeypatch: pytest.MonkeyPatch, interrupted: None
) -> None:
    busy, _ = waiting
    monkeypatch.setitem(browser._of_process, os.getpid(), busy)
    with interrupted_when(lambda: busy._orders.qsize() == 1, "the order to wait"):
        browser.done("/bin/false", lambda _: None)
    assert browser._of_process[os.getpid()] is busy


def test_a_browser_that_was_left_does_what_was_ordered_and_takes_no_more(waiting: tuple[Browser, Event]) -> None:
    busy, go_on = waiting
    before = busy.order(lambda _: "done")
    busy.leave()
    with pytest.raises(Left):
        busy.order(lambda _: "never")
    go_on.set()
    assert before.result(10) == "done"


def test_who_comes_to_a_browser_that_was_left_has_another(
    waiting: tuple[Browser, Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, _ = waiting
    monkeypatch.setitem(browser._of_process, os.getpid(), busy)
    busy.leave()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(browser.done, "/bin/false", lambda _: "done").result(10) == "done"
    browser._of_process[os.getpid()].close()


def test_no_browser_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoBrowser, match=r"no chromium in PATH and no CHROMIUM_PATH: install Debian's package chromium"):
        find({"PATH": "/nowhere"})
    with pytest.raises(NoBrowser, match="CHROMIUM_PATH='/nowhere/chromium' is no program"):
        find({"CHROMIUM_PATH": "/nowhere/chromium", "PATH": "/usr/bin"})


def test_a_program_that_is_no_browser_is_no_browser() -> None:
    nothing = Browser("/bin/false")
    with pytest.raises(NoBrowser, match="/bin/false does not start"):
        pictures(nothing, "http://127.0.0.1:9/", SIZES, 5)
    nothing.close()
