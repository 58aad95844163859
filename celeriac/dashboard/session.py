"""Sign in with an API token or a one-time code; sign out; keep preferences of display."""

from __future__ import annotations

import math
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection
from starlette.responses import HTMLResponse, RedirectResponse

from celeriac.dashboard.address import root_of, zone_of
from celeriac.dashboard.forms import Sent, SentUnknown
from celeriac.dashboard.guard import COOKIES, Viewer, cookie_of, failed, keep
from celeriac.dashboard.page import THEMES, Site
from celeriac.operate import sessions, tokens
from celeriac.store.connections import Database

router = APIRouter()

LOOPBACK = ("127.0.0.1", "::1")

#: Headers in which a proxy names the real caller.
FORWARDED = ("forwarded", "x-forwarded-for")

USED = "This link has been used, or is too old. It signs in once, on its own machine: `celeriac up` prints another."

#: Seconds that a browser keeps preferences.
YEAR = 365 * 86_400


@router.get("/sign-in")
def form(request: Request, to: str = "", code: str = "") -> Response:
    """Show the form. With a code, the page submits it: following the link alone changes nothing."""
    return _form(request, to, code=code)


@router.post("/sign-in")
def sign_in(request: Request, sent: SentUnknown) -> Response:
    """Sign in: the only form without a permission. The number of an address's wrong tokens in a minute is limited."""
    if sent["code"]:
        token = _token_of_code(request, sent["code"])
        return _refuse(request, sent["to"], USED) if token is None else _let_in(request, sent["to"], token)
    bearer = None
    if tokens.has_form(sent["token"]):
        with _database(request).statement() as connection:
            bearer = tokens.verify(connection, sent["token"])
    if bearer is None:
        return _refuse(request, sent["to"], "This token is not valid, or no longer.")
    if tokens.READ not in bearer.may:
        return _form(request, sent["to"], "This token only enqueues: it opens no page.", 403)
    return _let_in(request, sent["to"], bearer.id)


def _refuse(request: Request, to: str, why: str) -> Response:
    """Refuse a wrong token or code, and count it."""
    seconds = failed(request)
    if seconds <= 0:
        return _form(request, to, why, 401)
    answer = _form(request, to, f"Too many wrong tokens came from this address. Wait {math.ceil(seconds)} s.", 429)
    answer.headers["Retry-After"] = str(math.ceil(seconds))
    return answer


def _let_in(request: Request, to: str, token: str) -> Response:
    # The target is always relative, so that it cannot lead to another site.
    answer = RedirectResponse("./" + to.lstrip("/"), 303)
    name = cookie_of(request)
    _forget(request, answer, *(other for other in COOKIES if other != name))
    with _database(request).transaction() as connection:
        _end_all(request, connection)
        keep(request, answer, name, sessions.begin(connection, token), sessions.LONGEST)
    return answer


@router.post("/sign-out")
def sign_out(page: Viewer) -> Response:
    answer = RedirectResponse(page.to("sign-in"), 303)
    with page.celeriac.database.transaction() as connection:
        _end_all(page.request, connection)
    _forget(page.request, answer, *COOKIES)
    return answer


@router.post("/looks")
def looks(page: Viewer, sent: Sent) -> Response:
    """Keep theme and time zone in cookies: the server renders with them, so that no page flashes in the wrong theme."""
    answer = RedirectResponse("./" + sent["to"].lstrip("/"), 303)
    if sent["theme"] in THEMES:
        keep(page.request, answer, "celeriac-theme", sent["theme"], YEAR)
    if zone_of(sent["zone"]):
        keep(page.request, answer, "celeriac-zone", quote(sent["zone"], safe=""), YEAR)
    return answer


def _token_of_code(request: Request, code: str) -> str | None:
    """Return the id of the code's token. A code works only for a browser on this machine, and not through a proxy."""
    is_here = request.client is not None and request.client.host in LOOPBACK
    if not is_here or any(name in request.headers for name in FORWARDED) or not sessions.has_form(code):
        return None
    with _database(request).transaction() as connection:
        return sessions.use_code(connection, code)


def _database(request: Request) -> Database:
    site: Site = request.app.state.site
    return site.celeriac.database


def _end_all(request: Request, connection: Connection) -> None:
    """End this browser's sessions."""
    for name in COOKIES:
        if sessions.has_form(cookie := request.cookies.get(name, "")):
            sessions.end(connection, cookie)


def _forget(request: Request, answer: Response, *names: str) -> None:
    """Delete these cookies, if the browser has them."""
    for name in names:
        if name in request.cookies:
            keep(request, answer, name, "", None)


def _form(request: Request, to: str, said: str = "", status: int = 200, *, code: str = "") -> Response:
    site, root = request.app.state.site, root_of(request)
    html = site.templates.get_template("pages/sign-in.html").render(site=site, root=root, to=to, said=said, code=code)
    return HTMLResponse(html, status)
