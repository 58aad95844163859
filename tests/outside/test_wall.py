"""A page reaches public addresses only, whatever it asks for: by redirects, frames, or names that move."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import psutil
import pytest

from tasks.browser import Browser, PageFailed
from tasks.chromium import Chromium
from tasks.wall import Refused, Wall, allowed_hosts, is_public

INSIDE = (
    "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
)  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_what_is_inside_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_what_everybody_reaches_is(address: str) -> None:
    assert is_public(address)


def test_hosts_are_allowed_by_name() -> None:
    assert allowed_hosts({}) == frozenset()
    assert allowed_hosts({"BROWSER_ALLOWED_HOSTS": " Sandbox, [::1],,127.0.0.1"}) == {"sandbox", "::1", "127.0.0.1"}


def found(*addresses: str) -> Any:
    """What a resolver finds."""
    return lambda _, port, **__: [(socket.AF_INET, 1, 6, "", (address, port)) for address in addresses]


def test_a_name_with_any_address_inside_is_refused() -> None:
    wall = Wall(resolve=found("1.1.1.1", "10.0.0.7"))
    with pytest.raises(Refused, match=r"evil\.example is at 10\.0\.0\.7, which is no public address"):
        wall.connect("Evil.example.", 80)
    wall.close()


def test_a_name_is_resolved_once_and_that_address_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that has a public address when it is judged, and loopback's a moment later, leads nowhere else."""
    answers = iter(["1.1.1.1", "127.0.0.1"])
    connected: list[Any] = []
    monkeypatch.setattr(socket, "create_connection", lambda address, **_: connected.append(address))
    wall = Wall(resolve=lambda host, port, **more: found(next(answers))(host, port, **more))
    wall.connect("moving.example", 443)
    with pytest.raises(Refused):
        wall.connect("moving.example", 443)
    assert connected == [("1.1.1.1", 443)]
    wall.close()


class Site(BaseHTTPRequestHandler):
    """`/to?ADDRESS` redirects there; `/inside` is what nobody is to see; `/frame?ADDRESS` has it in a frame."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        path, _, to = self.path.partition("?")
        self.asked.append(f"{self.headers['Host']}{path}")
        body = f"<iframe src='{to}'></iframe><img src='{to}'>".encode() if path == "/frame" else b"<p>ok</p>"
        self.send_response(302 if path == "/to" else 200)
        if path == "/to":
            self.send_header("Location", to)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[int]:
    """A site's port; the site is at `localhost`, which is allowed, and at addresses inside, which are not."""
    Site.asked.clear()
    server = ThreadingHTTPServer(("0.0.0.0", 0), Site)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def browsing(chromium: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setenv("BROWSER_ALLOWED_HOSTS", "localhost")
    monkeypatch.setenv("CELERIAC_SECRET_OF_MINE", "kanarienvogel")
    browsing = Browser(chromium)
    yield browsing
    browsing.close()


SIZE = {"small": (100, 100)}


def pictures(browsing: Browser, url: str) -> dict[str, bytes]:
    return browsing.order(lambda chromium: chromium.pictures(url, SIZE, 60)).result()


def test_a_redirect_to_an_address_inside_is_refused_and_nothing_published(browsing: Browser, site: int) -> None:
    refused = [f"http://127.0.0.1:{site}/inside", f"http://127.1:{site}/inside", f"http://2130706433:{site}/inside",
               f"http://[::ffff:127.0.0.1]:{site}/inside", "http://169.254.169.254/latest/meta-data/",
               f"https://127.0.0.2:{site}/inside"]  # fmt: skip
    for target in refused:
        with pytest.raises(PageFailed, match="which is no public address: BROWSER_ALLOWED_HOSTS"):
            pictures(browsing, f"http://localhost:{site}/to?{target}")
        with pytest.raises(PageFailed, match="which is no public address"):
            pictures(browsing, target)
    ten = f"http://localhost:{site}/to?" * 10 + refused[0]
    with pytest.raises(PageFailed, match="which is no public address"):
        pictures(browsing, ten)
    assert {one.partition("/")[2] for one in Site.asked} == {"to"}


#: Ways to write an address inside, as browsers read them.
FORMS = (
    "127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f000001", "0x7f.0.1", "127.0.0.1.", "0",
    "\u2460\u2461\u2466.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:0001]", "[64:ff9b::7f00:1]",
    "169.254.169.254", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]", "[fe80::1]", "10.1.2.3", "moved.example",
)  # fmt: skip


#: By day a number, a mapped address, one of a cloud's, and a name that moves.
BY_DAY = ("2130706433", "[::ffff:7f00:1]", "169.254.169.254", "moved.example")

OTHERS = tuple(form for form in FORMS if form not in BY_DAY)


@pytest.mark.parametrize(
    "forms",
    [BY_DAY, pytest.param(OTHERS, marks=pytest.mark.nightly("a second for each other way to write one"))],
    ids=["some", "others"],
)
def test_ten_redirects_and_rebindings_later_an_address_inside_is_refused(
    chromium: str, site: int, monkeypatch: pytest.MonkeyPatch, forms: tuple[str, ...]
) -> None:
    """Each redirect is to a name of its own, at a public address the first time it is resolved, and at loopback's from
    then on. The site is where the test says that 127.0.0.3 is public.
    """
    resolved: list[str] = []

    def moving(host: str, port: int, **more: Any) -> Any:
        if not host.endswith(".example"):
            return socket.getaddrinfo(host, port, **more)
        is_known = host in resolved
        resolved.append(host)
        return found("127.0.0.1" if is_known else "127.0.0.3")(host, port)

    monkeypatch.setattr("tasks.wall.is_public", lambda address: address == "127.0.0.3" or is_public(address))
    monkeypatch.setattr("tasks.chromium.Wall", lambda allowed: Wall(allowed, moving))
    browsing = Browser(chromium)
    resolved.append("moved.example")
    for number, form in enumerate(forms):
        names = [f"hop-{number}-{hop}.example" for hop in range(10)]
        chain = "".join(f"http://{name}:{site}/to?" for name in names)
        with pytest.raises(PageFailed, match="which is no public address"):
            pictures(browsing, f"{chain}http://{form}:{site}/inside")
        with pytest.raises(PageFailed, match=f"{names[0]} is at 127.0.0.1, which is no public address"):
            pictures(browsing, f"http://again-{number}.example:{site}/to?http://{names[0]}:{site}/inside")
        assert [resolved.count(name) for name in names[1:]] == [1] * 9, "the address that was judged is connected to"
    browsing.close()
    assert len([one for one in Site.asked if one.endswith("/to")]) == 11 * len(forms)
    assert not [one for one in Site.asked if one.endswith("/inside")]


def test_a_frame_or_picture_inside_is_not_reached(browsing: Browser, site: int) -> None:
    assert pictures(browsing, f"http://localhost:{site}/frame?http://127.0.0.1:{site}/inside")
    assert f"localhost:{site}/frame" in Site.asked
    assert not [one for one in Site.asked if one.endswith("/inside")]


def test_by_default_no_host_inside_is_reached(chromium: str, site: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROWSER_ALLOWED_HOSTS", raising=False)
    browsing = Browser(chromium)
    for host in ("localhost", "127.0.0.1"):
        with pytest.raises(PageFailed, match="which is no public address"):
            pictures(browsing, f"http://{host}:{site}/")
    browsing.close()
    assert Site.asked == []


def environment(process: psutil.Process, chromium: Chromium) -> str:
    """Nothing of what is none of this browser's, or has ended."""
    try:
        is_its = chromium._mark in process.cmdline()
        return Path(f"/proc/{process.pid}/environ").read_text(errors="replace") if is_its else ""
    except (psutil.Error, OSError):
        return ""


def test_the_browser_has_nothing_of_the_environment(browsing: Browser, site: int) -> None:
    def environments(chromium: Chromium) -> list[str]:
        chromium.pictures(f"http://localhost:{site}/", SIZE, 60)
        return [
            read for process in psutil.Process().children(recursive=True) if (read := environment(process, chromium))
        ]

    read = browsing.order(environments).result()
    assert read
    assert not [one for one in read if "CELERIAC" in one or "kanarienvogel" in one or "DATABASE" in one]
