"""What an answer of Reddit's means, and what it tells.

    RedditError
    ├── RedditUnavailable    timeout, reset, 5xx, refused credentials, unreadable answer: try again later
    ├── RedditRateLimited    the limit is reached: try again after `retry_after` seconds
    └── SubredditGone        private, banned, nonexistent, …: repeating it changes nothing

Source: Reddit's API documentation (OAuth2; Listings); "Reddit Data API Wiki" (rate limits and their headers).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import prawcore
from praw.exceptions import PRAWException
from prawcore.exceptions import PrawcoreException
from requests import Response

from tasks.pace import RateLimited, retry_after_seconds
from tasks.text import storable


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
class Comment:
    """Without its text. `author` None: deleted, or not told; `parent` is the comment it answers, or else the `post`."""

    reddit_id: str
    author: str | None
    author_id: str | None
    post: str
    parent: str
    score: int
    posted_at: datetime


@dataclass(frozen=True)
class Limit:
    """What an answer's headers say: requests that remain until the limit is reset, in so many seconds."""

    remaining: int
    reset: float


def limit_of(headers: Mapping[str, str]) -> Limit | None:
    """What the headers say, if they say it readably."""
    try:
        limit = Limit(int(float(headers["x-ratelimit-remaining"])), float(headers["x-ratelimit-reset"]))
    except (KeyError, ValueError, OverflowError):
        return None
    return limit if math.isfinite(limit.reset) else None


def raise_for(response: Response, limit: Limit | None, *, is_token: bool) -> None:
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
def telling_of(name: str) -> Iterator[None]:
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


def post(found: Mapping[str, Any]) -> Post:
    """From its plain attributes: PRAW asks Reddit again for one that is missing."""
    return Post(
        **_written(found),
        title=storable(found["title"]),
        permalink=storable(found["permalink"]),
        url=storable(found["url"]),
        comments=int(found["num_comments"]),
        over_18=bool(found["over_18"]),
    )


def comment(found: Mapping[str, Any]) -> Comment:
    """From its plain attributes, as a post."""
    return Comment(**_written(found), post=storable(found["link_id"]), parent=storable(found["parent_id"]))


def _written(found: Mapping[str, Any]) -> dict[str, Any]:
    """What posts and comments have in common."""
    author = found["author"]
    return {
        "reddit_id": storable(found["name"]),
        "author": storable(author.name) if author else None,
        "author_id": found.get("author_fullname"),
        "score": int(found["score"]),
        "posted_at": moment(found["created_utc"]),
    }


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)
