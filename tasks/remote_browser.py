"""A browser elsewhere: `BROWSER_ADDRESS` names the service that opens pages (tasks/renderer.py), for workers have none.

A connection is one order: a line of JSON with `BROWSER_TOKEN`, then lines in turn until it is done. The end of the
connection ends the order, within seconds: the browser is killed if it has to be. The browser ends it once its page is
closed. What comes back was made beside pages of strangers: it is bounded, and believed in nothing.

    {"token": …, "order": "find"}                                             {"done": null}
    {"token": …, "order": "pictures", "url": …, "viewports": …, "seconds": …} {"done": {"desktop": "<base64>", …}}
    {"token": …, "order": "visit", "proxy": …, "seconds": …}                  {"ready": true}
        {"url": …, "selector": …, "seconds": …}                               {"texts": […]}, until these are wanted
        {"wanted": false}
    in place of any answer                                                    {"failed": "PageFailed", "why": …}
"""

from __future__ import annotations

import base64
import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

from tasks.chromium import (
    LOOK_EVERY,
    BrowserEnded,
    NoBrowser,
    PageFailed,
    PageIncomplete,
    PageRefused,
    Reader,
    Viewports,
)

T = TypeVar("T")

#: Bytes of a line: of an order, of a page's texts, of pictures: three of THUMBNAILS' sizes take 13 MB at most, in
#: base64 and not compressed at all.
LONGEST_ORDER, LONGEST_TEXTS, LONGEST_PICTURES = 65_536, 4 * 1024 * 1024, 16 * 1024 * 1024

#: Seconds: to connect; beyond an order's own time until its answer is given up; for a visit's page to be closed, which
#: the browser kills after less.
CONNECT, BEYOND, TO_CLOSE = 5.0, 15.0, 5.0

PNG = b"\x89PNG\r\n\x1a\n"


class NobodyAnswers(NoBrowser):
    """It starts, or the network is at fault: neither takes as long as an installation."""

    retry_after = min(15.0, LOOK_EVERY)


class Busy(NoBrowser):
    """All of its browsers are at work."""

    retry_after = 5.0


#: What an answer may say went wrong; anything else is a failed page.
KINDS = {kind.__name__: kind for kind in (NoBrowser, Busy, BrowserEnded, PageFailed)}


def address(environ: Mapping[str, str] = os.environ) -> str:
    """`host:port`; empty: this process drives a browser of its own."""
    return environ.get("BROWSER_ADDRESS", "")


class Lines:
    """Both ends of the conversation: a JSON object a line, until `give_up` on the monotonic clock."""

    def __init__(self, connection: socket.socket, longest: int, give_up: float) -> None:
        self._connection, self._longest, self.give_up = connection, longest, give_up
        self._coming = bytearray()

    def send(self, **what: Any) -> None:
        self._in_time()
        self._connection.sendall(json.dumps(what).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Raises OSError (TimeoutError within it) where nothing comes, ValueError where it is no such line."""
        self._in_time()
        seen = 0
        while (end := self._coming.find(b"\n", seen)) < 0 and len(self._coming) <= self._longest:
            seen = len(self._coming)
            if not (more := self._connection.recv(65_536)):
                if seen:
                    break
                raise ConnectionResetError("the connection ended")
            self._coming += more
            self._in_time()
        if not 0 <= end <= self._longest:
            raise ValueError("no line of the conversation")
        what = json.loads(self._coming[:end])
        del self._coming[: end + 1]
        if not isinstance(what, dict):
            raise ValueError("no line of the conversation")
        return what

    def end(self) -> None:
        """Say no more, and wait until the other end has done with it."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            self._in_time()
            while self._connection.recv(65_536):
                self._in_time()

    def close(self) -> None:
        self._connection.close()

    def _in_time(self) -> None:
        """A socket's timeout bounds one call; all of them together have this."""
        left = self.give_up - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(min(left, 86_400))


class RemoteBrowser:
    """As Chromium, of another pod."""

    def __init__(self, where: str, token: str) -> None:
        self._where, self._token = where, token

    def find(self) -> str:
        """Where it is, if there is one. Raises NoBrowser."""
        with self._asked("find", CONNECT, LONGEST_ORDER) as lines:
            lines.give_up = time.monotonic() + CONNECT
            _answer(lines)
        return self._where

    def pictures(self, url: str, viewports: Viewports, seconds: float) -> dict[str, bytes]:
        """A PNG of the page in each viewport. Raises PageFailed or NoBrowser."""
        with self._asked("pictures", seconds, LONGEST_PICTURES, url=url, viewports=viewports) as lines:
            taken = _answer(lines).get("done")
            if not isinstance(taken, dict) or set(taken) != set(viewports):
                raise PageFailed("the browser answered with other pictures than were asked for")
            return {name: _picture(text) for name, text in taken.items()}

    def visit(self, proxy: Mapping[str, str] | None, give_up: float, work: Callable[[Reader], T]) -> T:
        """What `work` makes of the pages it reads as a visitor. Raises PageFailed, NoBrowser and what `work` raises.

        Its page is closed by then, unless `work` was interrupted.
        """
        seconds = give_up - time.monotonic()
        with self._asked("visit", seconds, LONGEST_TEXTS, proxy=proxy and dict(proxy)) as lines:
            _answer(lines)
            try:
                done = work(_Pages(lines))
            except Exception:
                _close(lines)
                raise
            _close(lines)
            return done

    @contextmanager
    def _asked(self, order: str, seconds: float, longest: int, **what: Any) -> Iterator[Lines]:
        host, _, port = self._where.rpartition(":")
        try:
            connection = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT)
        except (OSError, ValueError) as error:
            raise NobodyAnswers(f"no browser answers at BROWSER_ADDRESS={self._where}: {error}") from error
        with closing(Lines(connection, longest, time.monotonic() + seconds + BEYOND)) as lines:
            _say(lines, token=self._token, order=order, seconds=seconds, **what)
            yield lines


class _Pages:
    """As Pages, of that browser."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def texts(
        self, url: str, selector: str, wanted: Callable[[list[str]], bool] = bool, *, seconds: float = math.inf
    ) -> list[str]:
        _say(self._lines, url=url, selector=selector, seconds=seconds if math.isfinite(seconds) else None)
        while True:
            texts = _answer(self._lines).get("texts")
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise PageFailed("the browser answered with no texts")
            is_wanted = wanted(texts)
            _say(self._lines, wanted=is_wanted)
            if is_wanted:
                return texts


def _close(lines: Lines) -> None:
    lines.give_up = time.monotonic() + TO_CLOSE
    lines.end()


def _say(lines: Lines, **what: Any) -> None:
    with _talking():
        lines.send(**what)


def _answer(lines: Lines) -> dict[str, Any]:
    with _talking():
        answer = lines.receive()
    if "failed" in answer:
        raise _failure(answer)
    return answer


@contextmanager
def _talking() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:
        raise BrowserEnded(f"the browser did not answer: {error}") from error


def _failure(answer: Mapping[str, Any]) -> Exception:
    kind, why = str(answer["failed"]), str(answer.get("why"))[:2_000]
    status, retry_after = answer.get("status"), answer.get("retry_after")
    if kind == PageRefused.__name__ and isinstance(status, int):
        return PageRefused(why, status, str(retry_after) if retry_after is not None else None)
    if kind == PageIncomplete.__name__:
        return PageIncomplete(why)
    return KINDS.get(kind, PageFailed)(why)


def failure(error: Exception) -> dict[str, Any]:
    """As an answer says it."""
    of_page = {"status": error.status, "retry_after": error.retry_after} if isinstance(error, PageRefused) else {}
    return {"failed": type(error).__name__, "why": str(error), **of_page}


def _picture(text: object) -> bytes:
    try:
        picture = base64.b64decode(str(text), validate=True)
    except ValueError as error:
        raise PageFailed("the browser answered with no picture") from error
    if not picture.startswith(PNG):
        raise PageFailed("the browser answered with something that is no PNG")
    return picture
