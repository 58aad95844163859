"""Signing in with an API token, signing out, and how one likes to look at things."""

from __future__ import annotations

import math
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from celeriac.dashboard.address import root_of, zone_of
from celeriac.dashboard.forms import Sent, SentUnknown
from celeriac.dashboard.guard import COOKIES, SESSION, May, cookie_of, failed, keep, verify
from celeriac.dashboard.page import THEMES, Page
from celeriac.operate import tokens

router = APIRouter()

#: How long (seconds) a browser keeps what one likes.
YEAR = 365 * 86_400


@router.get("/sign-in")
def form(request: Request, to: str = "") -> Response:
    return _form(request, to)


@router.post("/sign-in")
def sign_in(request: Request, sent: SentUnknown) -> Response:
    """The only form that needs no permission; an address may present so many wrong tokens a minute."""
    known = tokens.has_form(sent["token"]) and verify(request, sent["token"]) is not None
    if not known:
        seconds = failed(request)
        if seconds > 0:
            said = f"Too many wrong tokens came from this address. Wait {math.ceil(seconds)} s."
            answer = _form(request, sent["to"], said, 429)
            answer.headers["Retry-After"] = str(math.ceil(seconds))
            return answer
        return _form(request, sent["to"], "This token is not valid, or no longer.", 401)
    # Relative, whatever it says: it leads nowhere but here.
    answer = RedirectResponse("./" + sent["to"].lstrip("/"), 303)
    name = cookie_of(request)
    _forget(request, answer, *(other for other in COOKIES if other != name))
    keep(request, answer, name, sent["token"], SESSION)
    return answer


@router.post("/sign-out")
def sign_out(page: Annotated[Page, Depends(May("view"))]) -> Response:
    answer = RedirectResponse(page.to("sign-in"), 303)
    _forget(page.request, answer, *COOKIES)
    return answer


@router.post("/looks")
def looks(page: Annotated[Page, Depends(May("view"))], sent: Sent) -> Response:
    """Theme and time zone, in cookies that the server reads: no page flashes in the wrong one."""
    answer = RedirectResponse("./" + sent["to"].lstrip("/"), 303)
    if sent["theme"] in THEMES:
        keep(page.request, answer, "celeriac-theme", sent["theme"], YEAR)
    if zone_of(sent["zone"]):
        keep(page.request, answer, "celeriac-zone", quote(sent["zone"], safe=""), YEAR)
    return answer


def _forget(request: Request, answer: Response, *names: str) -> None:
    """Those of these sessions that the browser has."""
    for name in names:
        if name in request.cookies:
            keep(request, answer, name, "", None)


def _form(request: Request, to: str, said: str = "", status: int = 200) -> Response:
    site = request.app.state.site
    html = site.templates.get_template("pages/sign-in.html").render(site=site, root=root_of(request), to=to, said=said)
    return HTMLResponse(html, status)
