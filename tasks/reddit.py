"""What a crawl asks of Reddit's API, through PRAW with read-only app credentials.

PRAW retries and sleeps where a request fails or the limit comes near; the task system does both better, so that
each request here is tried once, and the limit is told to whoever counts (`Meter`).

Source: Reddit's API documentation (OAuth2; Listings); "Reddit Data API Wiki" (rate limits and their headers).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import praw
import prawcore
from prawcore.exceptions import RequestException
from requests import Response

from tasks.environment import address, positive, required, whole
from tasks.reddit_answers import (
    About,
    Comment,
    Limit,
    Post,
    RedditUnavailable,
    comment,
    limit_of,
    moment,
    post,
    raise_for,
    telling_of,
)
from tasks.text import storable

#: What one request brings of a listing, and what a listing holds at most.
PAGE, LONGEST_LISTING = 100, 1000

_NAME = re.compile(r"[a-z0-9][a-z0-9_]{1,20}")
_LIMITS = ("x-ratelimit-remaining", "x-ratelimit-used", "x-ratelimit-reset")

Listing = Literal["new", "hot"]
LISTINGS: tuple[Listing, ...] = ("new", "hot")


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
    comments_per_crawl: int = PAGE

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> RedditSettings:
        """Reads REDDIT_*; what is unset keeps its default. Raises ConfigurationError."""
        posts = whole("REDDIT_POSTS_PER_LISTING", PAGE, at_least=1, at_most=LONGEST_LISTING, environ=environ)
        comments = whole("REDDIT_COMMENTS_PER_CRAWL", PAGE, at_least=0, at_most=LONGEST_LISTING, environ=environ)
        return cls(
            client_id=required("REDDIT_CLIENT_ID", "the Reddit app's", environ=environ),
            client_secret=required("REDDIT_CLIENT_SECRET", "the Reddit app's", environ=environ),
            user_agent=environ.get("REDDIT_USER_AGENT") or cls.user_agent,
            oauth_url=address("REDDIT_OAUTH_URL", cls.oauth_url, environ=environ),
            url=address("REDDIT_URL", cls.url, environ=environ),
            timeout_seconds=positive("REDDIT_TIMEOUT_SECONDS", cls.timeout_seconds, environ=environ),
            posts_per_listing=posts,
            comments_per_crawl=comments,
        )

    @property
    def requests_per_crawl(self) -> int:
        """The most one crawl asks: about the subreddit, each page of each listing, and each of its comments."""
        return 1 + len(LISTINGS) * -(-self.posts_per_listing // PAGE) + -(-self.comments_per_crawl // PAGE)


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
        self._limit, self._comments = settings.posts_per_listing, settings.comments_per_crawl
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
        with telling_of(name):
            subreddit = self._reddit.subreddit(name)
            return About(
                subscribers=subreddit.subscribers,  # the first that PRAW has to ask for: it comes with the others
                display_name=storable(subreddit.display_name),
                title=storable(subreddit.title),
                description=storable(subreddit.public_description),
                over_18=bool(subreddit.over18),
                founded_at=moment(subreddit.created_utc),
            )

    def posts(self, name: str, listing: Listing) -> list[Post]:
        """The first posts of a listing, newest or hottest first. Raises RedditError."""
        with telling_of(name):
            subreddit = self._reddit.subreddit(name)
            return [post(vars(found)) for found in getattr(subreddit, listing)(limit=self._limit)]

    def comments(self, name: str) -> list[Comment]:
        """The newest of all its posts. Raises RedditError."""
        if not self._comments:
            return []
        with telling_of(name):
            return [comment(vars(found)) for found in self._reddit.subreddit(name).comments(limit=self._comments)]


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
        raise_for(response, limit, is_token=is_token)
        for header in _LIMITS:
            response.headers.pop(header, None)
        return response


def subreddit_name(given: str) -> str:
    """As it is stored: `/r/Python/` is "python". Raises ValueError for what names no subreddit."""
    name = given.strip().strip("/").lower().removeprefix("r/")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{given!r} names no subreddit: give 2 to 21 letters, digits and underscores")
    return name
