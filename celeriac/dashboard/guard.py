"""The guard: checks sessions, permissions and the origin of forms, and sets the headers of every answer.

A session is a random id in a cookie that no script can read. It ends when its user signs out or its token ends: from
the next request on it opens no page, in any server process.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, Protocol
from urllib.parse import urlsplit

from fastapi import Depends, Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celeriac.dashboard.page import Page, Repeated
from celeriac.errors import BadValue
from celeriac.operate import sessions
from celeriac.operate.tokens import ADMIN, CALLS, ENQUEUE, OPERATE, READ, Bearer

#: Each permission, with the scope of a token that gives it.
PERMISSIONS: Final = {
    "view": READ, "view_args": CALLS, "retry": OPERATE, "cancel": OPERATE, "priority": OPERATE, "enqueue": ENQUEUE,
    "schedules": OPERATE, "roles": OPERATE, "accounts": OPERATE, "workers": OPERATE,
    "define": ADMIN, "views": OPERATE,
}  # fmt: skip

#: The names of a session's cookie: over TLS, and over plain HTTP.
COOKIES: Final = ("__Host-celeriac", "celeriac")

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types celeriac"
)

HEADERS = {
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

SAFE = frozenset({"GET", "HEAD"})


class NotSignedIn(Exception):
    """There is no session, or its token is not valid any more."""


class Forbidden(Exception):
    """The token's scopes do not give this permission."""

    def __init__(self, permission: str, page: Page) -> None:
        super().__init__(permission)
        self.permission, self.page = permission, page


class Throttle(Protocol):
    """A limit of how often an address may present a wrong token, or a token may be used."""

    def take(self, key: str) -> float:
        """Count one for this address or token. Return the seconds to wait if that was too often, else 0."""


class May:
    """Checks for a session with this permission, for every route except sign-in. Returns the request's page."""

    def __init__(self, permission: str) -> None:
        self.permission, self.scope = permission, PERMISSIONS[permission]

    def __call__(self, request: Request) -> Page:
        bearer = bearer_of(request)
        if bearer is None:
            raise NotSignedIn
        refuse_until(request.app.state.requests.take(bearer.id), f"The token {bearer.name!r} asks too often.")
        permissions = frozenset(p for p, scope in PERMISSIONS.items() if scope in bearer.may)
        page = Page(request, bearer, permissions, request.app.state.site.reading.moment())
        if self.scope not in bearer.may:
            raise Forbidden(self.permission, page)
        if any("\0" in text for text in (request.scope["path"], *request.query_params.values())):
            raise BadValue("the address has a NUL, which Postgres does not take")
        if (answer := page.earlier()) is not None:
            raise Repeated(answer)
        return page


#: A handler's page, which needs a session with the permission.
Viewer = Annotated[Page, Depends(May("view"))]
Retrier = Annotated[Page, Depends(May("retry"))]
Canceller = Annotated[Page, Depends(May("cancel"))]
Prioritiser = Annotated[Page, Depends(May("priority"))]
Enqueuer = Annotated[Page, Depends(May("enqueue"))]
ScheduleSteerer = Annotated[Page, Depends(May("schedules"))]
RoleSteerer = Annotated[Page, Depends(May("roles"))]
AccountSteerer = Annotated[Page, Depends(May("accounts"))]
WorkerSteerer = Annotated[Page, Depends(May("workers"))]
Definer = Annotated[Page, Depends(May("define"))]
Sharer = Annotated[Page, Depends(May("views"))]


def bearer_of(request: Request) -> Bearer | None:
    """Return the session's bearer. A well-formed id is always checked: others' wrong ids cannot lock it out."""
    presented = next((cookie for name in COOKIES if (cookie := request.cookies.get(name))), None)
    if not presented:
        return None
    bearer = None
    if sessions.has_form(presented):
        with request.app.state.site.celeriac.database.statement() as connection:
            bearer = sessions.verify(connection, presented)
    if bearer is None:
        refuse_until(failed(request), "Too many sessions that are none came from this address.")
    return bearer


def failed(request: Request) -> float:
    """Count a wrong token. Return the seconds to wait if its address sent too many."""
    throttle: Throttle = request.app.state.throttle
    return throttle.take(request.client.host if request.client else "")


def refuse_until(seconds: float, why: str) -> None:
    if seconds > 0:
        wait = math.ceil(seconds)
        raise HTTPException(429, f"{why} Wait {wait} s.", {"Retry-After": str(wait)})


def is_tls(request: Request) -> bool:
    """Return whether the browser uses TLS, which a proxy may have ended; then a form's Origin still shows it."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def cookie_of(request: Request) -> str:
    """Return the name of the session's cookie; over TLS one that the browser accepts only from this host."""
    return COOKIES[0] if is_tls(request) else COOKIES[1]


def keep(request: Request, answer: Response, name: str, value: str, seconds: int | None) -> None:
    """Set a cookie that no script can read and no other site's form sends. `seconds` None: delete it."""
    answer.set_cookie(
        name, value, max_age=0 if seconds is None else seconds, path="/", httponly=True, samesite="lax",
        secure=is_tls(request) or name == COOKIES[0],
    )  # fmt: skip


def role_of(bearer: Bearer) -> str:
    return "admin" if ADMIN in bearer.may else "operator" if OPERATE in bearer.may else "viewer"


class Guard:
    """The outermost layer: refuses other sites' forms, sets answers' headers, and answers HEAD as GET without body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        is_head = scope["method"] == "HEAD"
        if is_head:
            scope = {**scope, "method": "GET", "without_body": True}
        if scope["method"] in SAFE or is_same_origin(Headers(scope=scope)):
            await self.app(scope, receive, sealed)
        else:
            refusal = PlainTextResponse("This form was not sent from the dashboard's own page.", 403)
            await refusal(scope, receive, sealed)


def is_same_origin(headers: Headers) -> bool:
    """Return whether the browser reports the same origin; if it does not report that, whether Origin is this host."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin = headers.get("origin", "")
    try:
        return bool(origin) and urlsplit(origin).netloc == headers.get("host")
    except ValueError:
        return False
