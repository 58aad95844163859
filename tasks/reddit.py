"""What a crawl asks of Reddit's API, through PRAW with read-only app credentials.

    RedditError
    ├── RedditUnavailable    timeout, reset, 5xx, refused credentials, unreadable answer: try again later
    ├── RedditRateLimited    the limit is reached: try again after `retry_after` seconds
    └── SubredditGone        private, banned, nonexistent, …: repeating it changes nothing

PRAW retries and sleeps where a request fails or the limit comes near; the task system does both better, so that
each request here is tried once, and the limit is told to whoever counts (`Meter`).

Source: Reddit's API documentation (OAuth2; Listings); "Reddit Data API Wiki" (rate limits and their headers).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import praw
import prawcore
from praw.exceptions import PRAWException
from prawcore.exceptions import PrawcoreException, RequestException
from requests import Response

from tasks.environment import address, number, required
from tasks.pace import RateLimited, retry_after_seconds
from tasks.text import storable

#: What one request brings of a listing, and what a listing holds at most.
PAGE, LONGEST_LISTING = 100, 1000

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{1,20}")
_LIMITS = ("x-ratelimit-remaining", "x-ratelimit-used", "x-ratelimit-reset")

Listing = Literal["new", "hot"]
LISTINGS: tuple[Listing, ...] = ("new", "hot")


class RedditError(Exception):
    """Reddit did not give what was asked for."""


class RedditUnavailable(RedditError):
    """No usable answer. Worth a retry."""


class RedditRateLimited(RedditError, RateLimited):
    service = "Reddit"


class SubredditGone(RedditError):
    """Permanent. `reason`: Reddit's own word where it gives one (private, banned, quarantined), or "not found"."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"r/{self.name} cannot be read: {self.reason}"


@dataclass(frozen=True)
class RedditSettings:
    """The app's credentials, where Reddit is, how much a crawl reads."""

    client_id: str
    client_secret: str = field(repr=False)
    user_agent: str = "python:celeriac:0.1 (subreddit crawler)"
    oauth_url: str = "https://oauth.reddit.com"
    url: str = "https://www.reddit.com"
    timeout_seconds: float = 16.0
    posts_per_listing: int = PAGE

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> RedditSettings:
        """Reads REDDIT_*; what is unset keeps its default. Raises ConfigurationError."""
        posts = number("REDDIT_POSTS_PER_LISTING", PAGE, at_least=1, at_most=LONGEST_LISTING, environ=environ)
        return cls(
            client_id=required("REDDIT_CLIENT_ID", "the Reddit app's", environ=environ),
            client_secret=required("REDDIT_CLIENT_SECRET", "the Reddit app's", environ=environ),
            user_agent=environ.get("REDDIT_USER_AGENT") or cls.user_agent,
            oauth_url=address("REDDIT_OAUTH_URL", cls.oauth_url, environ=environ),
            url=address("REDDIT_URL", cls.url, environ=environ),
            timeout_seconds=number("REDDIT_TIMEOUT_SECONDS", cls.timeout_seconds, at_least=0.01, environ=environ),
            posts_per_listing=int(posts),
        )

    @property
    def requests_per_crawl(self) -> int:
        """The most one crawl asks: about the subreddit, and each page of each listing."""
        return 1 + len(LISTINGS) * -(-self.posts_per_listing // PAGE)


@dataclass(frozen=True)
class About:
    """A subreddit, as Reddit describes it."""

    display_name: str
    title: str
    description: str
    subscribers: int | None
    over_18: bool
    founded_at: datetime


@dataclass(frozen=True)
class Post:
    """`author` None: deleted, or not told."""

    reddit_id: str
    author: str | None
    author_id: str | None
    title: str
    permalink: str
    url: str
    score: int
    comments: int
    over_18: bool
    posted_at: datetime


@dataclass(frozen=True)
class Limit:
    """What an answer's headers say: requests that remain until the limit is reset, in so many seconds."""

    remaining: int
    reset: float


class Meter(Protocol):
    """Counts the requests of one crawl."""

    def spend(self) -> None:
        """Before each request. Raises RedditRateLimited if there may be none."""

    def heard(self, limit: Limit) -> None:
        """What the answer said."""


class Reddit:
    """One connection pool and one access token; for one crawl at a time, opened after a fork, not before."""

    def __init__(self, settings: RedditSettings) -> None:
        self.meter: Meter | None = None
        self._limit = settings.posts_per_listing
        kept = {"timeout": settings.timeout_seconds, "client": self}
        self._reddit = praw.Reddit(
            client_id=settings.client_id, client_secret=settings.client_secret, user_agent=settings.user_agent,
            oauth_url=settings.oauth_url.rstrip("/") + "/", reddit_url=settings.url.rstrip("/"),
            check_for_updates=False, check_for_async=False, requestor_class=OneTry, requestor_kwargs=kept,
            # Whatever a praw.ini or the environment says: read only.
            username=None, password=None, refresh_token=None, redirect_uri=None,
        )  # fmt: skip

    @contextmanager
    def metered(self, meter: Meter) -> Iterator[Reddit]:
        """Within it, this meter counts."""
        self.meter = meter
        try:
            yield self
        finally:
            self.meter = None

    def about(self, name: str) -> About:
        """Raises RedditError."""
        with _telling_of(name):
            subreddit = self._reddit.subreddit(name)
            return About(
                subscribers=subreddit.subscribers,  # the first that PRAW has to ask for: it comes with the others
                display_name=storable(subreddit.display_name),
                title=storable(subreddit.title),
                description=storable(subreddit.public_description),
                over_18=bool(subreddit.over18),
                founded_at=_moment(subreddit.created_utc),
            )

    def posts(self, name: str, listing: Listing) -> list[Post]:
        """The first posts of a listing, newest or hottest first. Raises RedditError."""
        with _telling_of(name):
            subreddit = self._reddit.subreddit(name)
            return [_post(vars(found)) for found in getattr(subreddit, listing)(limit=self._limit)]


class OneTry(prawcore.Requestor):
    """Sends a request once, and tells the limit to the meter instead of to PRAW, which would sleep."""

    def __init__(self, *, client: Reddit, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._client = client

    def request(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Response:  # noqa: ARG002 - our own
        is_token = str(args[1]).endswith("/access_token")
        meter = None if is_token else self._client.meter
        if meter:
            meter.spend()
        try:
            response = super().request(*args, timeout=self.timeout, **kwargs)
        except RequestException as error:
            raise RedditUnavailable(f"{type(error.original_exception).__name__}: {error.original_exception}") from error
        limit = limit_of(response.headers)
        if meter and limit:
            meter.heard(limit)
        _raise_for(response, limit, is_token=is_token)
        for header in _LIMITS:
            response.headers.pop(header, None)
        return response


def limit_of(headers: Mapping[str, str]) -> Limit | None:
    """What the headers say, if they say it readably."""
    try:
        limit = Limit(int(float(headers["x-ratelimit-remaining"])), float(headers["x-ratelimit-reset"]))
    except (KeyError, ValueError, OverflowError):
        return None
    return limit if math.isfinite(limit.reset) else None


def subreddit_name(given: str) -> str:
    """As it is stored: `/r/Python/` is "python". Raises ValueError for what names no subreddit."""
    name = given.strip().strip("/").lower().removeprefix("r/")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{given!r} names no subreddit: give 2 to 21 letters, digits and underscores")
    return name


def _raise_for(response: Response, limit: Limit | None, *, is_token: bool) -> None:
    status = response.status_code
    if is_token and status in (401, 403):
        raise RedditUnavailable("Reddit refused the credentials: check REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET")
    if status == 429:
        raise RedditRateLimited(_retry_after(response, limit))
    if status >= 500 or status == 408:
        raise RedditUnavailable(f"Reddit answered {status}")


def _retry_after(response: Response, limit: Limit | None) -> float:
    """Without a word of Reddit's, a minute: the limit is an average over ten."""
    if given := response.headers.get("retry-after"):
        return retry_after_seconds(given, datetime.now(UTC))
    return max(1.0, limit.reset) if limit else 60.0


@contextmanager
def _telling_of(name: str) -> Iterator[None]:
    try:
        yield
    except prawcore.Redirect as error:  # to a search for subreddits
        raise SubredditGone(name, "not found") from error
    except (prawcore.NotFound, prawcore.Forbidden, prawcore.UnavailableForLegalReasons) as error:
        raise SubredditGone(name, _reason(error)) from error
    except (PrawcoreException, PRAWException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RedditUnavailable(f"Reddit's answer is of no use: {type(error).__name__}: {error}") from error


def _reason(error: prawcore.ResponseException) -> str:
    try:
        told = error.response.json().get("reason")
    except (ValueError, AttributeError):
        told = None
    return storable(told or {403: "forbidden", 404: "not found"}.get(error.response.status_code, "legal reasons"))


def _post(found: Mapping[str, Any]) -> Post:
    """From its plain attributes: PRAW asks Reddit again for one that is missing."""
    author = found["author"]
    return Post(
        reddit_id=storable(found["name"]),
        author=storable(author.name) if author else None,
        author_id=found.get("author_fullname"),
        title=storable(found["title"]),
        permalink=storable(found["permalink"]),
        url=storable(found["url"]),
        score=int(found["score"]),
        comments=int(found["num_comments"]),
        over_18=bool(found["over_18"]),
        posted_at=_moment(found["created_utc"]),
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)
