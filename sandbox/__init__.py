"""Local stand-ins of what is outside: Duda's API and its previews, Cloudflare, menus, Reddit, SMTP, DNS, proxies.

They listen on real sockets and speak the documented protocols; see `python -m sandbox --help`, or in a test:

    with sandbox.start() as outside:
        settings = DudaSettings.from_env(outside.environ())
        outside.faults.order("reset_after", "create")
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from sandbox.cloudflare import Cloudflare
from sandbox.duda import DudaApi
from sandbox.faults import Faults, Plan
from sandbox.mail import Mailbox, MailServer
from sandbox.menus import Menus
from sandbox.names import Names, NamesServer
from sandbox.previews import Previews
from sandbox.proxies import Proxy
from sandbox.reddit import RedditApi
from sandbox.server import Server
from sandbox.sites import Sites
from sandbox.stand_ins import StandIn
from sandbox.webmenus import Echo, WebMenus

S = TypeVar("S", Server, NamesServer, MailServer, Proxy)

__all__ = ["TEMPLATES", "Plan", "Sandbox", "start"]

TEMPLATES = (20012, 20022, 1027437)  # The template ids of the documentation's examples.
SENDER = "sites@sandbox.example"


def start(
    *,
    host: str = "127.0.0.1",
    http_port: int = 0,
    smtp_port: int = 0,
    dns_port: int = 0,
    plan: Plan | None = None,
    templates: Collection[int] = TEMPLATES,
    credentials: tuple[str, str] = ("sandbox", "sandbox-password"),
    proxies: int = 0,
) -> Sandbox:
    """Starts all three servers, and so many proxies, and returns when they answer; port 0 is a free port.

    plan: latency, faults and seed (none by default). Raises OSError when a port is taken.
    """
    return Sandbox(host, (http_port, smtp_port, dns_port), plan or Plan(), templates, credentials, proxies)


class Sandbox:
    """The running servers, and what they hold: `sites`, `faults`, `mailbox`, `names`, `proxies`, stand-ins by name."""

    def __init__(
        self,
        host: str,
        ports: tuple[int, int, int],
        plan: Plan,
        templates: Collection[int],
        credentials: tuple[str, str],
        proxies: int,
    ) -> None:
        http_port, smtp_port, dns_port = ports
        self.sites, self.faults, self.mailbox, self.names = Sites(templates), Faults(plan), Mailbox(), Names()
        self.previews, self.menus, self.reddit = Previews(), Menus(), RedditApi(credentials)
        self.duda, self.cloudflare = DudaApi(self.sites, credentials), Cloudflare(self.names)
        self.webmenus = WebMenus()
        self._others: tuple[StandIn, ...] = (
            self.previews, self.menus, self.webmenus, Echo(), self.reddit, self.cloudflare,
        )  # fmt: skip
        self._stand_ins: tuple[StandIn, ...] = (self.duda, *self._others)
        with ExitStack() as started:
            server = Server((host, http_port), self.faults, self._control, self._stand_ins)
            self._server = _started(server, started)
            self._names = _started(NamesServer((host, dns_port), self.names), started)
            self._mail = _started(MailServer(self.mailbox, hostname=host, port=smtp_port), started)
            self.proxies = [_started(Proxy(number), started) for number in range(proxies)]
            self._stop = started.pop_all().close
        self.http_url = f"http://{host}:{self._server.server_port}"
        self.smtp = (host, self._mail.port)
        self.dns = (host, self._names.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends hanging requests and closes every socket."""
        self._stop()

    def environ(self) -> dict[str, str]:
        """The environment in which the application talks to this sandbox."""
        return {
            **ChainMap(*(stand_in.environ(self.http_url) for stand_in in self._stand_ins)),
            "SMTP_HOST": self.smtp[0],
            "SMTP_PORT": str(self.smtp[1]),
            "SMTP_STARTTLS": "false",
            "MAIL_FROM": SENDER,
            "BROWSER_ALLOWED_HOSTS": str(urlsplit(self.http_url).hostname),
            "DNS_NAMESERVER": f"{self.dns[0]}:{self.dns[1]}",
        }

    def describe(self) -> dict[str, Any]:
        """Everything that can be asked of it, as JSON: also at `/_sandbox/state`."""
        return {
            **self.sites.describe(),
            "requests": dict(self._server.requests),
            "in_flight": self._server.in_flight,
            "connections": self._server.connections_opened,
            "faults": self.faults.describe(),
            "mail": self.mailbox.describe(),
            "names": self.names.describe(),
            **{stand_in.name: stand_in.describe() for stand_in in self._others},
        }

    def release(self) -> None:
        """Ends the hanging of all requests that hang now, instead of after `hang_seconds`."""
        self._server.release()

    def clear(self) -> None:
        """Forgets sites, mail, names and counts; the plan of faults stays."""
        self.mailbox.clear()
        self.names.clear()
        for stand_in in self._stand_ins:
            stand_in.clear()
        self._server.requests.clear()

    def _control(self, method: str, path: str, wanted: Any) -> Any:
        """`/_sandbox/…`: GET state, faults, mail, names; PUT faults, names; POST clear, release."""
        match method, path:
            case "GET", "state":
                return self.describe()
            case "GET", "faults" | "mail" | "names":
                return self.describe()[path]
            case "PUT", "faults":
                self.faults.change(_mapping(wanted))
            case "PUT", "names":
                self.names.update(_mapping(wanted))
            case "POST", "clear":
                self.clear()
            case "POST", "release":
                self.release()
            case _:
                raise LookupError(f"There is no {method} /_sandbox/{path}")
        return self.describe().get(path)


def _started(server: S, undo: ExitStack) -> S:
    server.start()
    undo.callback(server.stop)
    return server


def _mapping(wanted: Any) -> Mapping[str, Any]:
    if not isinstance(wanted, Mapping):
        raise ValueError("Send a JSON object")
    return wanted
