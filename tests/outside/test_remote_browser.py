"""A browser elsewhere, as a process that is told nothing: what a worker has of it, and what it has of the worker's."""

from __future__ import annotations

import base64
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest

import sandbox
from celeriac import ConfigurationError
from tasks import browser, remote_browser
from tasks.chromium import BrowserEnded, NoBrowser, PageFailed, PageIncomplete, PageRefused, Reader
from tasks.remote_browser import LONGEST_TEXTS, Busy, Lines, RemoteBrowser
from tasks.renderer import from_environ, too_much
from tests.deploy.compose import free_port, services
from tests.processes import Running, process, until

TOKEN = "a-long-random-text-of-this-test"
SIZES = {"wide": (640, 300), "narrow": (200, 400)}


@pytest.fixture(scope="module")
def outside() -> Iterator[sandbox.Sandbox]:
    with sandbox.start() as running:
        yield running


@pytest.fixture(scope="module")
def where() -> str:
    return f"127.0.0.1:{free_port()}"


@contextmanager
def rendering(chromium: str, where: str, log: Path) -> Iterator[Running]:
    """As compose runs it, with one browser, that reaches what is at 127.0.0.1."""
    chosen = {"BROWSER_TOKEN": TOKEN, "BROWSER_AT_ONCE": "1"}
    service = services(chosen, {"8700": where.rpartition(":")[2]})["browser"]
    with process(service.command, service.environ | {"CHROMIUM_PATH": chromium}, log, alone=True) as running:
        until(lambda: "pages are opened" in running.printed() or running.process.poll() is not None, "the renderer")
        assert running.process.poll() is None, running.printed()
        yield running


@pytest.fixture(scope="module")
def renderer(chromium: str, where: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with rendering(chromium, where, tmp_path_factory.mktemp("renderer") / "log") as running:
        yield running


@pytest.fixture
def remote(renderer: Running, where: str) -> RemoteBrowser:
    return RemoteBrowser(where, TOKEN)


def page(outside: sandbox.Sandbox, path: str) -> str:
    return f"{outside.http_url}/preview/{path}"


def test_pictures_come_as_from_a_browser_here(
    remote: RemoteBrowser, where: str, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER_ADDRESS", where)
    monkeypatch.setenv("BROWSER_TOKEN", TOKEN)
    taken = browser.pictures(browser.found(), page(outside, "anna"), SIZES, 60)
    assert {name: struct.unpack(">II", picture[16:24]) for name, picture in taken.items()} == SIZES
    with pytest.raises(PageRefused, match="answered 503") as refused:
        remote.pictures(page(outside, "1?status=503"), SIZES, 60)
    assert refused.value.status == 503
    with pytest.raises(PageFailed, match=r"127\.0\.0\.2, which is no public address"):
        remote.pictures("http://127.0.0.2/", SIZES, 60)


def test_a_visit_reads_page_after_page_until_the_texts_are_wanted(
    remote: RemoteBrowser, outside: sandbox.Sandbox
) -> None:
    seen: list[list[str]] = []

    def third_time(texts: list[str]) -> bool:
        seen.append(texts)
        return len(seen) > 2

    def work(pages: Reader) -> list[str]:
        pages.texts(page(outside, "berta"), "body", third_time)
        return pages.texts(page(outside, "clara"), "h1")

    assert remote.visit(None, time.monotonic() + 60, work) == ["clara"]
    assert len(seen) == 3
    with pytest.raises(PageIncomplete, match="came without what was wanted of it"):
        remote.visit(None, time.monotonic() + 60, lambda pages: pages.texts(page(outside, "1"), "video", seconds=0.5))


def test_a_worker_that_goes_leaves_the_browser_to_the_next(remote: RemoteBrowser, outside: sandbox.Sandbox) -> None:
    """There is one browser: a visit that nobody ends keeps it from the next order."""

    def interrupted(_: Reader) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remote.visit(None, time.monotonic() + 600, interrupted)
    assert remote.pictures(page(outside, "dora"), SIZES, 60)


@pytest.mark.parametrize(
    "order", [pytest.param("pictures", marks=pytest.mark.nightly("the other order; by day a visit")), "visit"]
)
def test_a_worker_that_goes_amid_a_page_that_does_not_come_leaves_it_as_well(
    remote: RemoteBrowser, where: str, outside: sandbox.Sandbox, order: str
) -> None:
    url = page(outside, f"held-{order}")
    host, _, port = where.partition(":")
    with outside.previews.held():
        with socket.create_connection((host, int(port))) as worker:
            lines = Lines(worker, LONGEST_TEXTS, time.monotonic() + 60)
            lines.send(token=TOKEN, order=order, seconds=600, url=url, viewports=SIZES, proxy=None)
            if order == "visit":
                assert lines.receive() == {"ready": True}
                lines.send(url=url, selector="body", seconds=None)
            until(lambda: (f"held-{order}", "") in outside.previews.visits, "the page to be asked for")
        assert remote.visit(None, time.monotonic() + 60, lambda _: "there is a browser again")


def test_what_it_is_about_when_it_ends_comes_to_its_end(
    chromium: str, outside: sandbox.Sandbox, tmp_path: Path
) -> None:
    there = f"127.0.0.1:{free_port()}"
    with rendering(chromium, there, tmp_path / "log") as ending:

        def work(pages: Reader) -> list[str]:
            ending.process.terminate()
            until(lambda: _refuses(there), "it to take nothing new")
            return pages.texts(page(outside, "fanny"), "h1")

        assert RemoteBrowser(there, TOKEN).visit(None, time.monotonic() + 60, work) == ["fanny"]
        assert ending.process.wait(30) == 0


def _refuses(where: str) -> bool:
    try:
        RemoteBrowser(where, TOKEN).find()
    except (NoBrowser, BrowserEnded):
        return True
    return False


def test_all_browsers_at_work_is_no_fault_of_the_page(
    remote: RemoteBrowser, outside: sandbox.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(pages: Reader) -> Any:
        pages.texts(page(outside, "emil"), "body")
        with pytest.raises(Busy, match="all browsers are at work"):
            remote.pictures(page(outside, "dora"), SIZES, 60)

    remote.visit(None, time.monotonic() + 120, meanwhile)


def test_without_the_token_nothing_is_opened(renderer: Running, where: str) -> None:
    for token in ("", "another"):
        with pytest.raises(NoBrowser, match="BROWSER_TOKEN is not the browser's"):
            RemoteBrowser(where, token).find()
    assert RemoteBrowser(where, TOKEN).find() == where


def test_no_browser_there_waits_and_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BROWSER_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.delenv("BROWSER_TOKEN", raising=False)
    with pytest.raises(NoBrowser, match="BROWSER_ADDRESS is set and BROWSER_TOKEN is not"):
        browser.found()
    monkeypatch.setenv("BROWSER_TOKEN", TOKEN)
    with pytest.raises(NoBrowser, match="no browser answers at BROWSER_ADDRESS") as missing:
        browser.found()
    assert missing.value.retry_after == 15, "it may be about to start"
    assert "tasks wait for a browser, looking every 15 s: no browser answers" in caplog.text


def test_neither_it_nor_its_children_have_a_credential(renderer: Running, remote: RemoteBrowser) -> None:
    """Whoever breaks out of Chromium reads the environment of the process that started it."""

    def work(_: Reader) -> list[str]:
        running = [psutil.Process(renderer.pid), *psutil.Process(renderer.pid).children(recursive=True)]
        assert len(running) > 2
        return [Path(f"/proc/{one.pid}/environ").read_text(errors="replace") for one in running]

    read = "".join(remote.visit(None, time.monotonic() + 60, work))
    assert "GPG_KEY" in read, "as in a container"
    read = read.replace("GOOGLE_DEFAULT_CLIENT_SECRET", "")  # Chromium's own, the same on each Debian
    assert [word for word in ("DATABASE", "REDIS", "SMTP", "DUDA", "SECRET", "PASSWORD") if word in read] == []
    assert re.findall(r"://[^/\s]*@", read) == []


@pytest.mark.parametrize(
    "name",
    ["DATABASE_URL", "REDIS_URL", "ADMIN_DATABASE_URL", "SMTP_PASSWORD", "DUDA_API_TOKEN", "CELERIAC_LOGINS",
     "PGPASSFILE", "SENTRY_DSN", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_ACCESS_KEY_ID", "BROKER_URL", "HTTPS_PROXY"],
)  # fmt: skip
def test_it_does_not_start_beside_a_secret(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"take {name} out of its environment"):
        from_environ({"BROWSER_TOKEN": TOKEN, name: "x"})
    with pytest.raises(ConfigurationError, match="BROWSER_TOKEN is empty"):
        from_environ({})


def test_what_a_shell_and_the_platform_say_is_no_secret() -> None:
    said = (
        "HOSTNAME",
        "LC_ALL",
        "TZ",
        "SSL_CERT_FILE",
        "KUBERNETES_SERVICE_HOST",
        "KUBERNETES_PORT_443_TCP_ADDR",
        "PWD",
    )
    assert too_much(dict.fromkeys(said, "x")) == []
    assert too_much({"DATABASE_URL": "", "KUBERNETES_TOKEN": "x"}) == ["KUBERNETES_TOKEN"]


@contextmanager
def listening() -> Iterator[tuple[str, int]]:
    """The service's own server, in a thread."""
    with from_environ({"BROWSER_TOKEN": TOKEN, "BROWSER_LISTEN": "127.0.0.1:0"}) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address  # type: ignore[misc]
        server.shutdown()


@pytest.mark.parametrize(("said", "warnings"), [(b"", 0), (b'{"token": ', 1)])
def test_a_probe_that_connects_and_goes_is_worth_no_line(
    said: bytes, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with listening() as there, socket.create_connection(there) as probe:
        probe.sendall(said)
        probe.shutdown(socket.SHUT_WR)
        assert probe.recv(1) == b""
    assert len([record for record in caplog.records if record.name == "tasks.renderer"]) == warnings


def test_connections_that_show_no_token_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.renderer.UNKNOWN", 1)
    with listening() as there, socket.create_connection(there), socket.create_connection(there) as second:
        assert second.recv(1) == b"", "closed at once"


def test_a_conversation_has_one_end_however_it_trickles_in() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lines = Lines(ours, 1_000_000, time.monotonic() + 0.5)
        theirs.sendall(line(texts=[]) * 2 + b" ")
        assert lines.receive() == lines.receive() == {"texts": []}
        trickles = Thread(target=_trickle, args=(theirs,), daemon=True)
        trickles.start()
        with pytest.raises(TimeoutError):
            lines.receive()
        theirs.shutdown(socket.SHUT_RDWR)
        trickles.join()
        lines._coming[:] = line(texts=[])
        with pytest.raises(TimeoutError):
            lines.receive()


def _trickle(connection: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection.sendall(b" ")
            time.sleep(0.02)


def test_a_visit_is_over_once_its_page_is_closed() -> None:
    closed = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(line(ready=True))
                assert connection.recv(1) == b"", "no more is said"
                closed.set()

        Thread(target=answer, daemon=True).start()
        one = RemoteBrowser(f"127.0.0.1:{server.getsockname()[1]}", TOKEN)
        one.visit(None, time.monotonic() + 20, lambda _: None)
        assert closed.is_set()


@contextmanager
def answering(*lines: bytes) -> Iterator[RemoteBrowser]:
    """A browser that says this, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                for line in lines:
                    connection.sendall(line)

        Thread(target=answer, daemon=True).start()
        yield RemoteBrowser(f"127.0.0.1:{server.getsockname()[1]}", TOKEN)


def line(**what: Any) -> bytes:
    return json.dumps(what).encode() + b"\n"


def _pictures(one: RemoteBrowser) -> Any:
    return one.pictures("http://site.example/", {"wide": (1, 1)}, 20)


def _visit(one: RemoteBrowser) -> Any:
    return one.visit(None, time.monotonic() + 20, lambda pages: pages.texts("http://site.example/", "body"))


HTML = base64.b64encode(b"<script>").decode()

LIES: list[tuple[Callable[[RemoteBrowser], Any], tuple[bytes, ...], str]] = [
    (_pictures, (line(done={"wide": HTML}),), "no PNG"),
    (_pictures, (line(done={"wide": "€"}),), "no picture"),
    (_pictures, (line(done={"../../wide": HTML}),), "other pictures"),
    (_pictures, (line(done=7),), "other pictures"),
    (_pictures, (b"\xff\xfe\n",), "did not answer"),
    (_pictures, (b"[" * 60_000 + b"\n",), "did not answer"),
    (_pictures, (b"[]\n",), "no line of the conversation"),
    (_pictures, (b"x" * 3_000_000,), "no line of the conversation"),
    (_pictures, (), "the connection ended"),
    (_pictures, (line(failed="SystemExit", why="x" * 9_000),), "x" * 2_000 + "$"),
    (_pictures, (line(failed="PageRefused", why="y", status="200"),), "^y$"),
    (_visit, (line(ready=True), line(texts=["a", 7])), "no texts"),
    (_visit, (line(ready=True), line(texts={"a": "b"})), "no texts"),
]  # fmt: skip


@pytest.mark.parametrize("lie", range(len(LIES)))
def test_what_it_answers_is_believed_in_nothing(lie: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that broke out answers in the browser's place: that is a failed page, and nothing else."""
    monkeypatch.setattr(remote_browser, "LONGEST_PICTURES", 1_000_000)
    asks, lines, why = LIES[lie]
    with answering(*lines) as one, pytest.raises(PageFailed, match=why) as failed:
        asks(one)
    assert type(failed.value) in (PageFailed, BrowserEnded)
