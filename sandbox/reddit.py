"""Reddit's API over HTTP, for the endpoints that crawling a subreddit needs, with its rate limit.

    POST /reddit/api/v1/access_token       app-only OAuth (client_credentials)
    GET  /reddit/oauth/r/<name>/about      a subreddit
    GET  /reddit/oauth/r/<name>/new, hot   its posts, 100 a page, by `after`, `before` and `limit`
    GET  /reddit/oauth/r/<name>/comments   its newest comments, likewise

Source: Reddit's API documentation (OAuth2; Listings); "Reddit Data API Wiki" (rate limits and their headers).
"""

from __future__ import annotations

import base64
import hmac
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import parse_qs

from sandbox.forum import Forum, Missing
from sandbox.stand_ins import Asked, Reply, Request

TOKEN_SECONDS = 86_400
_READ = re.compile(r"/reddit/oauth/r/([^/]+)/(about|new|hot|comments)(?:/|\.json)?")


@dataclass(frozen=True)
class Window:
    """The limit: `requests` for each client in `seconds`, from the first on."""

    requests: int = 1000
    seconds: float = 600.0


@dataclass(frozen=True)
class Visit:
    """A request as it came in, whatever became of it. `at`: seconds since 1970; `token`: whose, counted from 1."""

    at: float
    token: int
    subreddit: str
    operation: str


class Limiter:
    """Counts within the window; `most` is the most one window saw, `refused` what came beyond the limit."""

    def __init__(self, window: Window) -> None:
        self.window, self.used, self.most, self.refused, self.windows = window, 0, 0, 0, 0
        self._ends = 0.0

    def count(self) -> bool:
        """Whether one more is within the limit."""
        if time.monotonic() >= self._ends:
            self._ends, self.used, self.windows = time.monotonic() + self.window.seconds, 0, self.windows + 1
        within = self.used < self.window.requests
        self.used += within
        self.refused += not within
        self.most = max(self.most, self.used)
        return within

    def headers(self) -> dict[str, str]:
        return {
            "x-ratelimit-used": str(self.used),
            "x-ratelimit-remaining": f"{self.window.requests - self.used:.1f}",
            "x-ratelimit-reset": str(int(max(0.0, self._ends - time.monotonic()))),
        }


class RedditApi:
    """Tokens, the limit and what was asked; the subreddits themselves are in `forum`."""

    name, prefix = "reddit", "/reddit/"

    def __init__(self, credentials: tuple[str, str]) -> None:
        self.forum = Forum()
        self._credentials = credentials
        self._authorization = b"Basic " + base64.b64encode(":".join(credentials).encode())
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self.forum.clear()
            self._tokens: dict[str, int] = {}
            self._numbers = itertools.count(1)
            self._limiter = Limiter(Window())
            self._visits: list[Visit] = []
            self._served: Counter[str] = Counter()
            self._seen: dict[str, set[str]] = {"t3": set(), "t1": set()}

    def limit(self, requests: int, seconds: float) -> None:
        """Another limit, in a fresh window."""
        with self._lock:
            self._limiter = Limiter(Window(requests, seconds))

    def revoke(self) -> None:
        """No token given so far is worth anything."""
        with self._lock:
            self._tokens.clear()

    @property
    def visits(self) -> Sequence[Visit]:
        with self._lock:
            return tuple(self._visits)

    def environ(self, http_url: str) -> dict[str, str]:
        client, secret = self._credentials
        return {
            "REDDIT_CLIENT_ID": client,
            "REDDIT_CLIENT_SECRET": secret,
            "REDDIT_URL": f"{http_url}/reddit",
            "REDDIT_OAUTH_URL": f"{http_url}/reddit/oauth",
        }

    def describe(self) -> Any:
        """`served`: listings and descriptions by subreddit; `posts`, `comments`: ids of all that were served."""
        with self._lock:
            limiter = self._limiter
            told = {"most": limiter.most, "refused": limiter.refused, "windows": limiter.windows}
            return {
                "limit": asdict(limiter.window) | told,
                "served": dict(self._served),
                "posts": sorted(self._seen["t3"]),
                "comments": sorted(self._seen["t1"]),
                "tokens": len(self._tokens),
            }

    def answer(self, request: Request) -> Asked | Reply:
        if request.path == "/reddit/api/v1/access_token" and request.method == "POST":
            return Asked("token", "", lambda: self._token(request))
        found = _READ.fullmatch(request.path)
        if request.method != "GET" or found is None:
            return _error(404, "Not Found")
        name, operation = found[1].lower(), found[2]
        if (token := self._token_of(request)) is None:
            return replace(_error(401, "Unauthorized"), headers={"WWW-Authenticate": INVALID_TOKEN})
        with self._lock:
            self._visits.append(Visit(time.time(), token, name, operation))
        return Asked(operation, name, lambda: self._read(name, operation, parse_qs(request.query)))

    def _token(self, request: Request) -> Reply:
        given = (request.headers.get("Authorization") or "").encode()
        if not hmac.compare_digest(given, self._authorization):
            return _error(401, "Unauthorized")
        if parse_qs(request.body.decode()).get("grant_type") != ["client_credentials"]:
            return Reply(200, {"error": "unsupported_grant_type"})  # with 200: as Reddit does it
        with self._lock:
            number = next(self._numbers)
            self._tokens[f"token-{number}"] = number
        bearer = {"access_token": f"token-{number}", "token_type": "bearer", "expires_in": TOKEN_SECONDS, "scope": "*"}
        return Reply(200, bearer)

    def _token_of(self, request: Request) -> int | None:
        kind, _, token = (request.headers.get("Authorization") or "").partition(" ")
        with self._lock:
            return self._tokens.get(token) if kind.lower() == "bearer" else None

    def _read(self, name: str, operation: str, wanted: dict[str, list[str]]) -> Reply:
        with self._lock:
            if not self._limiter.count():
                return replace(_error(429, "Too Many Requests"), headers=self._limiter.headers())
            reply = self._found(name, operation, {key: values[0] for key, values in wanted.items()})
            return replace(reply, headers=reply.headers | self._limiter.headers())

    def _found(self, name: str, operation: str, wanted: dict[str, str]) -> Reply:
        try:
            document = self.forum.about(name) if operation == "about" else self.forum.listing(name, operation, wanted)
        except Missing as missing:
            return _missing(name, missing)
        self._served[name] += 1
        if operation != "about":
            for child in document["data"]["children"]:
                self._seen[child["kind"]].add(child["data"]["name"])
        return Reply(200, document)


INVALID_TOKEN = 'Bearer realm="reddit", error="invalid_token"'


def _missing(name: str, missing: Missing) -> Reply:
    if missing.reason is None:
        return Reply(302, {}, {"Location": f"/subreddits/search?q={name}"})
    status, message = (404, "Not Found") if missing.reason == "banned" else (403, "Forbidden")
    return _error(status, message, missing.reason)


def _error(status: int, message: str, reason: str | None = None) -> Reply:
    """Reddit's error object."""
    return Reply(status, {"message": message, "error": status} | ({"reason": reason} if reason else {}))
