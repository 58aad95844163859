"""Pages for errors: what went wrong, what still works, what to do."""

from __future__ import annotations

import logging
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from psycopg2.extensions import QueryCanceledError
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse

from celeriac.dashboard import words
from celeriac.dashboard.address import root_of, wants_json, within
from celeriac.dashboard.guard import PERMISSIONS, Forbidden, NotSignedIn
from celeriac.dashboard.page import Elsewhere, Repeated
from celeriac.errors import BadValue, EnqueueRefused, IllegalMove, Unknown
from celeriac.store.failures import is_gone, is_locked, log_error

logger = logging.getLogger(__name__)

#: Seconds after which a browser may try again if Postgres failed.
AGAIN = 5

AWAY = (
    "Postgres does not answer. What is open stays as it was; nothing can be changed until it is back. Try again soon."
)


def answer(request: Request, error: Exception) -> Response:
    match error:
        case Repeated():
            return error.answer
        case Elsewhere():
            return RedirectResponse(error.location, 303)
        case NotSignedIn():
            return _to_sign_in(request)
    status, said = refusal(error)
    if status >= 500:
        log_error(logger, error, "A page failed")
    headers = _headers(error, status)
    if wants_json(request):
        return JSONResponse({"status": status, "detail": said}, status, headers)
    site = request.app.state.site
    html = site.templates.get_template("pages/error.html").render(
        site=site, root=root_of(request), status=status, said=said
    )
    return HTMLResponse(html, status, headers)


def _headers(error: Exception, status: int) -> dict[str, str]:
    """Return the error's own headers, such as Allow; and Retry-After if another attempt may succeed."""
    own = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return ({"Retry-After": str(AGAIN)} if status == 503 else {}) | own


def refusal(error: Exception) -> tuple[int, str]:
    """Return the status and the sentence for the user; details are for the log."""
    match error:
        case Forbidden():
            need = f"a token with the scope {PERMISSIONS[error.permission]}"
            return 403, f"This needs the permission {error.permission}: sign in with {need}."
        case Unknown():
            return 404, words.sentence(str(error))
        case BadValue():
            return 422, words.sentence(str(error))
        case IllegalMove() | EnqueueRefused():
            return 409, words.sentence(str(error))
        case RequestValidationError():
            return 404, "There is no such page: a number is too large, or none."
        case HTTPException():
            return error.status_code, "There is no such page." if error.status_code == 404 else str(error.detail)
        case NoConnection():
            return 503, AWAY
        case DBAPIError():
            return _of_postgres(error)
    return 500, "This failed, and the server's log says why. Other pages may work."


def _of_postgres(error: DBAPIError) -> tuple[int, str]:
    if isinstance(error, DataError):
        return 422, "Something given here is nothing that Postgres takes: too large, or no text. Nothing was changed."
    if isinstance(error.orig, QueryCanceledError):
        return 503, "This took too long and was stopped. Narrow it by role or time, or try again."
    if is_locked(error):
        return 503, "Somebody's open transaction has what this needs; nothing was changed. Try again soon."
    if is_gone(error):
        return 503, AWAY
    return 500, "This failed, and the server's log says why. Other pages may work."


def _to_sign_in(request: Request) -> Response:
    if wants_json(request) or request.headers.get("live"):
        return JSONResponse({"status": 401, "detail": "Sign in first."}, 401)
    root, to = root_of(request), ""
    if request.method == "GET":
        to = within(request).lstrip("/") + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{root}sign-in" + (f"?to={quote(to, safe='')}" if to else ""), 303)
