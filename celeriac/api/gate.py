"""The gate: runs before any route is looked up. Without a valid token only health answers."""

from __future__ import annotations

import json
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import move_on_after
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celeriac.api.limits import ASIDE, Buckets
from celeriac.api.paths import asked_path
from celeriac.api.problems import Problem, from_exception
from celeriac.api.protocol import SECURITY_HEADERS
from celeriac.api.shared import Shared
from celeriac.errors import ConfigurationError
from celeriac.insights.tasks.veil import veiled
from celeriac.operate import tokens
from celeriac.store.failures import in_a_line, log_error

if TYPE_CHECKING:
    from celeriac.app import Celeriac

logger = logging.getLogger(__name__)

#: Paths open to everybody.
OPEN = frozenset({"/healthz", "/readyz"})

#: The path of the OpenAPI document, which shows no task and is never masked.
DOCUMENT = "/openapi.json"

#: Threads that check tokens. Handlers have others, so waiting handlers delay no check.
VERIFIERS = 4

#: Seconds of unused requests that a token may save up and send at once.
BURST = 2.0


class Gate:
    """Admits or refuses requests, bounds their bodies, and answers every exception with a problem document."""

    def __init__(self, app: ASGIApp, celeriac: Celeriac) -> None:
        settings = celeriac.settings
        self.app, self.celeriac = app, celeriac
        self.most_bytes = settings.api_body_bytes
        self.requests = Buckets(settings.api_requests, settings.api_requests * BURST)
        self.failures = Buckets(settings.api_failures / 60, settings.api_failures)
        self.verified = Shared(self._verify, VERIFIERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = Answer(send, has_body=scope["method"] != "HEAD")
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        try:
            await self._pass(scope, receive, answer)
        except Exception as error:
            if answer.begun:
                raise
            where = "query" if scope["method"] == "GET" else "body"
            await _problem_of(error, where).response(asked_path(scope))(scope, receive, answer)

    async def _pass(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        sender: Send = answer
        bearer = await (self._known(scope) if scope["path"] in OPEN else self._admit(scope))
        scope.setdefault("state", {})["bearer"] = bearer
        if bearer is not None and tokens.CALLS not in bearer.may and asked_path(scope) != DOCUMENT:
            sender = Veil(answer)
        await self.app(scope, Body(scope, receive, self.most_bytes), sender)

    async def _known(self, scope: Scope) -> tokens.Bearer | None:
        """Return the caller at a path that needs no token; None if the token is invalid, used too often, or cannot be
        checked in time.
        """
        with suppress(SQLAlchemyError, ConfigurationError), move_on_after(ASIDE):
            _, bearer = await self._presented(scope)
            if bearer is not None and not self.requests.take(bearer.id):
                return bearer
        return None

    async def _admit(self, scope: Scope) -> tokens.Bearer:
        address = scope["client"][0] if scope.get("client") else ""
        scheme, bearer = await self._presented(scope)
        if bearer is None:
            wait = self.failures.take(address)
            _refuse_until(wait, "too many requests without a valid token came from this address")
            raise _not_admitted(scheme)
        _refuse_until(self.requests.take(bearer.id), f"the token {bearer.name!r} asks too often")
        return bearer

    async def _presented(self, scope: Scope) -> tuple[str, tokens.Bearer | None]:
        """Return the scheme (empty without credentials) and the token's bearer. A well-formed token is checked even if
        others' failures from the same address are too many.
        """
        scheme, _, presented = Headers(scope=scope).get("authorization", "").partition(" ")
        token = presented.strip()
        is_token = scheme.lower() == "bearer" and tokens.has_form(token)
        return scheme, await self.verified(token) if is_token else None

    def _verify(self, presented: str) -> tokens.Bearer | None:
        with self.celeriac.database.statement() as connection:
            return tokens.verify(connection, presented)


class Answer:
    """Sends an answer with the security headers, without a body for HEAD. `begun`: whether sending has begun."""

    def __init__(self, send: Send, *, has_body: bool = True) -> None:
        self.send, self.has_body, self.begun = send, has_body, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            MutableHeaders(scope=message).update(SECURITY_HEADERS)
        elif message["type"] == "http.response.body" and not self.has_body:
            message = {**message, "body": b""}
        await self.send(message)


class Body:
    """Receives at most `most` bytes of a request's body, whatever its Content-Length."""

    def __init__(self, scope: Scope, receive: Receive, most: float) -> None:
        self.receive, self.most, self.seen = receive, most, 0
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise self._too_large()

    async def __call__(self) -> Message:
        message = await self.receive()
        self.seen += len(message.get("body", b""))
        if self.seen > self.most:
            raise self._too_large()
        return message

    def _too_large(self) -> Problem:
        return Problem(413, f"a request may have {self.most:.0f} bytes (CELERIAC_API_BODY_BYTES)")


def _refuse_until(seconds: float, why: str) -> None:
    if seconds > 0:
        raise Problem(429, f"{why}; wait", headers={"Retry-After": str(math.ceil(seconds))})


def _not_admitted(scheme: str) -> Problem:
    why = "this token is not valid, or no longer" if scheme else "send `Authorization: Bearer <token>`"
    challenge = 'Bearer error="invalid_token"' if scheme else "Bearer"
    return Problem(401, why, headers={"WWW-Authenticate": challenge})


def _problem_of(error: Exception, where: str) -> Problem:
    problem = from_exception(error, where)
    if problem.status_code == 503:
        logger.warning("A request failed: %s", in_a_line(error))
    elif problem.status_code >= 500:
        log_error(logger, error, "A request failed")
    return problem


class Veil:
    """Masks an answer that is JSON, and sends it once it is complete. Any other answer is sent as it is."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_json(message):
            self.start = message
        elif self.start is None:
            await self.send(message)
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_whole(self.start)

    async def _send_whole(self, start: Message) -> None:
        body = json.dumps(veiled(json.loads(self.body)), ensure_ascii=False).encode() if self.body else b""
        MutableHeaders(scope=start)["content-length"] = str(len(body))
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})


def _is_json(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith("application/json")
