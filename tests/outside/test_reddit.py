"""The client of Reddit's API against the sandbox, over real sockets, through PRAW."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import sandbox
from celeriac import ConfigurationError
from sandbox.faults import Kind
from tasks.reddit import Reddit, RedditSettings, subreddit_name
from tasks.reddit_answers import Limit, RedditRateLimited, RedditUnavailable, SubredditGone, limit_of


class Meter:
    """Lets everything pass, and remembers what it heard."""

    def __init__(self) -> None:
        self.spent, self.limits = 0, list[Limit]()

    def spend(self) -> None:
        self.spent += 1

    def heard(self, limit: Limit) -> None:
        self.limits.append(limit)


def settings_for(outside: sandbox.Sandbox, **changes: str) -> RedditSettings:
    return RedditSettings.from_env(outside.environ() | changes)


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
def reddit(outside: sandbox.Sandbox, meter: Meter) -> Iterator[Reddit]:
    outside.reddit.forum.open("Python", posts=250)
    settings = settings_for(outside, REDDIT_POSTS_PER_LISTING="220", REDDIT_TIMEOUT_SECONDS="2")
    with Reddit(settings).metered(meter) as client:
        yield client


def test_a_subreddit_is_described(reddit: Reddit) -> None:
    about = reddit.about("python")
    assert (about.display_name, about.subscribers, about.over_18) == ("Python", 1250, False)


def test_a_listing_is_read_page_by_page_in_its_order(outside: sandbox.Sandbox, reddit: Reddit, meter: Meter) -> None:
    newest = reddit.posts("python", "new")
    assert [post.reddit_id for post in newest] == [f"t3_python{n:05}" for n in range(249, 29, -1)]
    assert meter.spent == 3
    hottest = [post.score for post in reddit.posts("python", "hot")]
    assert hottest == sorted(hottest, reverse=True)
    assert meter.spent == 6


@pytest.mark.parametrize(("comments", "asked"), [("0", 0), ("100", 1), ("150", 2)])
def test_as_many_comments_are_read_as_the_setting_says(outside: sandbox.Sandbox, comments: str, asked: int) -> None:
    outside.reddit.forum.open("Python", comments=220)
    settings = settings_for(outside, REDDIT_COMMENTS_PER_CRAWL=comments)
    meter = Meter()
    with Reddit(settings).metered(meter) as client:
        newest = client.comments("python")
    assert [one.reddit_id for one in newest] == [f"t1_python{n:05}" for n in range(219, 219 - int(comments), -1)]
    assert meter.spent == asked
    assert settings.requests_per_crawl == 3 + asked
    assert {one.parent[:2] for one in newest} == ({"t1", "t3"} if newest else set())
    assert all(one.author is None for one in newest if int(one.reddit_id[-5:]) % 10 == 9)


def test_a_deleted_author_is_nobody(reddit: Reddit) -> None:
    deleted, named = reddit.posts("python", "new")[:2]
    assert (deleted.author, deleted.author_id) == (None, None)
    assert named.author_id == f"t2_{str(named.author).lower()}"


def test_the_limit_is_told_after_each_request_and_the_token_is_not_counted(reddit: Reddit, meter: Meter) -> None:
    reddit.posts("python", "new")
    assert [limit.remaining for limit in meter.limits] == [999, 998, 997]
    assert all(590 < limit.reset <= 600 for limit in meter.limits)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("server_error", RedditUnavailable), ("reset_before", RedditUnavailable), ("hang_before", RedditUnavailable),
        ("rate_limited", RedditRateLimited),
    ],
)  # fmt: skip
def test_what_fails_is_asked_for_once_and_nobody_sleeps(
    outside: sandbox.Sandbox, reddit: Reddit, meter: Meter, fault: Kind, error: type[Exception]
) -> None:
    reddit.about("python")
    outside.faults.order(fault, "about")
    began = time.monotonic()
    with pytest.raises(error):
        reddit.about("python")
    assert time.monotonic() - began < 5
    assert meter.spent == 2


def test_beyond_the_limit_it_says_for_how_long(outside: sandbox.Sandbox, reddit: Reddit, meter: Meter) -> None:
    outside.reddit.limit(1, 50)
    reddit.about("python")
    with pytest.raises(RedditRateLimited) as limited:
        reddit.about("python")
    assert limited.value.retry_after == pytest.approx(49, abs=2)
    assert meter.limits[-1].remaining == 0


@pytest.mark.parametrize("as_date", [False, True])
def test_a_rate_limit_tells_the_seconds_to_wait(outside: sandbox.Sandbox, reddit: Reddit, as_date: bool) -> None:
    outside.faults.change({"retry_after": 30, "retry_after_date": as_date})
    outside.faults.order("rate_limited", "about")
    with pytest.raises(RedditRateLimited) as limited:
        reddit.about("python")
    assert limited.value.retry_after == pytest.approx(30, abs=2)


@pytest.mark.parametrize("standing", ["private", "banned", "quarantined", None])
def test_a_subreddit_that_cannot_be_read_says_why(outside: sandbox.Sandbox, reddit: Reddit, standing: Any) -> None:
    if standing:
        outside.reddit.forum.open("Closed", standing=standing)
    with pytest.raises(SubredditGone) as gone:
        reddit.about("closed")
    assert gone.value.reason == (standing or "not found")


def test_a_token_that_is_worth_nothing_any_more_is_renewed(outside: sandbox.Sandbox, reddit: Reddit) -> None:
    reddit.about("python")
    outside.reddit.revoke()
    assert reddit.about("python").display_name == "Python"


def test_wrong_credentials_name_the_settings(outside: sandbox.Sandbox) -> None:
    with pytest.raises(RedditUnavailable, match="REDDIT_CLIENT_ID and REDDIT_CLIENT_SECRET"):
        Reddit(settings_for(outside, REDDIT_CLIENT_SECRET="wrong")).about("python")


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"REDDIT_CLIENT_ID": ""}, "REDDIT_CLIENT_ID"),
        ({"REDDIT_CLIENT_SECRET": ""}, "REDDIT_CLIENT_SECRET"),
        ({"REDDIT_POSTS_PER_LISTING": "1001"}, "REDDIT_POSTS_PER_LISTING"),
        ({"REDDIT_COMMENTS_PER_CRAWL": "-1"}, "REDDIT_COMMENTS_PER_CRAWL"),
        ({"REDDIT_URL": "reddit.com"}, "REDDIT_URL"),
    ],
)
def test_a_setting_that_cannot_be_is_named(environ: Mapping[str, str], names: str) -> None:
    with pytest.raises(ConfigurationError, match=names):
        RedditSettings.from_env({"REDDIT_CLIENT_ID": "x", "REDDIT_CLIENT_SECRET": "y"} | environ)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ratelimit-remaining": "9"},
        {"x-ratelimit-remaining": "many", "x-ratelimit-reset": "9"},
        {"x-ratelimit-remaining": "9", "x-ratelimit-reset": "inf"},
        {"x-ratelimit-remaining": "9", "x-ratelimit-reset": "nan"},
    ],
)
def test_headers_that_say_nothing_readable_say_nothing(headers: Mapping[str, str]) -> None:
    assert limit_of(headers) is None


@pytest.mark.parametrize("given", ["python", "Python", "r/Python", "/r/PYTHON/", " r/python "])
def test_a_subreddit_has_one_name_however_it_is_written(given: str) -> None:
    assert subreddit_name(given) == "python"
