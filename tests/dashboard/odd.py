"""Names that look like numbers, paths, options, folders or commands; and each surface, to name things by them."""

from __future__ import annotations

import html
import json
import re
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import httpx
from click.testing import CliRunner

from celeriac.cli import within_celery
from celeriac.roles.bounds import NAME
from tests.dashboard.site import Site
from tests.processes import until

#: Of any text, as keys and accounts are.
ODD = (
    "/begins", "ends/", "a/../b", "100%", "%2F", "a b", " a ", "a+b", "a?b=c", "a#b", "-dash", "--yes", "007",
    "it's \"quoted\"", "back\\slash", "line\nbreak", "..", ".", "report.json", "page.html", "<b>&amp;", "(none)",
    "$(id)", "a@b", "a", "ü–ß" * 111,
)  # fmt: skip

#: Tasks' ids, of which some are parts of the paths beside a task's own.
IDS = (
    *ODD, "order/17", "a/b/c", "tasks/history", "why", "counts", "a%20b", "a&b", "-1", "1.0", "id=x", "x" * 1000,
)  # fmt: skip

#: Of what people give a name to.
NAMES = (*(name for name in ODD if NAME.fits(name)), "ü–ß" * 66 + "50")

#: Of these none is a name; each surface refuses them by one sentence.
NO_NAMES = ("", " ", " a ", "line\nbreak", "x" * 201, ".", "..", "zero\u200bwidth", "no\u00a0break", "two\u2028lines")


def command(site: Site, *arguments: object) -> Any:
    return CliRunner().invoke(within_celery, [str(a) for a in arguments], obj=SimpleNamespace(app=site.app))


def done(site: Site, *arguments: object) -> Any:
    """Run a command, which has to succeed, and return its JSON."""
    first, *rest = arguments
    ran = command(site, first, rest[0], "--json", *rest[1:])
    assert ran.exit_code == 0, (arguments, ran.output)
    return json.loads(ran.stdout)


def api(site: Site, method: str, path: str, *, token: str = "", **given: Any) -> httpx.Response:
    bearer = {"Authorization": f"Bearer {token or site.tokens['admin']}"}
    return site.http.request(method, f"http://{site.host}/api/{path}", headers=bearer, **given)


def ok(site: Site, method: str, path: str, **given: Any) -> Any:
    """Call the API, which has to answer with JSON."""
    answer = api(site, method, path, **given)
    assert answer.is_success, (path, answer.status_code, answer.text)
    return answer.json()


def quoted(name: str) -> str:
    return quote(name, safe="")


_LINK = re.compile(r'<a href="([^"]*)"[^>]*>([^<]*)</a>')
_FORM = re.compile(r'<form method="post"[^>]* action="([^"]*)"')


def _there(site: Site, page: str, target: str) -> str:
    """Return where a browser goes from this page, as a path below the dashboard's."""
    to = httpx.URL(f"{site.url}/{page}").join(html.unescape(target))
    assert str(to).startswith(f"{site.url}/"), (page, target)
    return str(to).removeprefix(f"{site.url}/")


def links(site: Site, page: str) -> dict[str, str]:
    """Return where the page's links lead, by their texts."""
    return {html.unescape(text): _there(site, page, target) for target, text in _LINK.findall(site.html(page))}


def followed(site: Site, page: str, name: str) -> str:
    """Return where the page's link that is called so leads; a part that was not read in time has none, for now."""
    return until(lambda: links(site, page).get(name), f"the link {name!r} on {page}")


def panel(site: Site, page: str, name: str) -> Any:
    """Return a part of a page's content, once Postgres has answered for it in time."""

    def read() -> Any:
        value = site.get(page, "admin").json()[name]
        return None if isinstance(value, dict) and "stopped" in value else value

    return until(read, f"{name} of {page}")


def pressed(site: Site, page: str, verb: str, **fields: str) -> str:
    """Send the page's form of this name, and return the page that follows."""
    targets = {_there(site, page, target) for target in _FORM.findall(site.html(page))}
    (target,) = {one for one in targets if one.partition("/")[0] == verb}
    answer = site.post(target, "admin", **fields)
    assert answer.status_code == 303, (page, verb, answer.status_code, answer.text[:2000])
    return _there(site, target, answer.headers["location"])
