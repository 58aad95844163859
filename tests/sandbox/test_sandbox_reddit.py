"""Reddit's API as any client would see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import sandbox

CLIENT_CREDENTIALS = {"grant_type": "client_credentials"}


@pytest.fixture
def token(outside: sandbox.Sandbox) -> str:
    return str(asked_for_token(outside, "sandbox-password").json()["access_token"])


@pytest.fixture
def reddit(outside: sandbox.Sandbox, token: str) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"bearer {token}"}
    address = outside.environ()["REDDIT_OAUTH_URL"]
    with httpx.Client(base_url=address, headers=headers, trust_env=False, timeout=10) as client:
        yield client


def asked_for_token(outside: sandbox.Sandbox, secret: str, wanted: Any = CLIENT_CREDENTIALS) -> httpx.Response:
    address = f"{outside.environ()['REDDIT_URL']}/api/v1/access_token"
    return httpx.post(address, auth=("sandbox", secret), data=wanted, trust_env=False)


def names(page: httpx.Response) -> list[int]:
    """The numbers of the page's posts."""
    return [int(child["data"]["name"][-5:]) for child in page.json()["data"]["children"]]


def test_only_the_right_secret_brings_a_token_and_only_a_token_an_answer(
    outside: sandbox.Sandbox, reddit: httpx.Client
) -> None:
    assert asked_for_token(outside, "wrong").status_code == 401
    assert asked_for_token(outside, "sandbox-password", {"grant_type": "x"}).json() == {
        "error": "unsupported_grant_type"
    }
    outside.reddit.forum.open("Python")
    assert reddit.get("r/python/about").status_code == 200
    refused = reddit.get("r/python/about", headers={"Authorization": "bearer forged"})
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_pages_follow_each_other_in_both_directions(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Python", posts=60)
    first = reddit.get("r/python/new", params={"limit": 25})
    assert names(first) == list(range(59, 34, -1))
    assert first.json()["data"]["before"] is None
    second = reddit.get("r/python/new", params={"limit": 25, "after": first.json()["data"]["after"]})
    last = reddit.get("r/python/new", params={"limit": 25, "after": second.json()["data"]["after"]})
    assert names(second) + names(last) == list(range(34, -1, -1))
    assert last.json()["data"]["after"] is None
    back = reddit.get("r/python/new", params={"limit": 25, "before": second.json()["data"]["before"]})
    assert names(back) == names(first)


def test_a_page_holds_25_posts_unless_told_and_100_at_most(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Python", posts=150)
    assert len(names(reddit.get("r/python/new"))) == 25
    assert len(names(reddit.get("r/python/hot", params={"limit": 1000}))) == 100


def test_comments_answer_posts_and_each_other(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Python", posts=2, comments=6)
    page = reddit.get("r/python/comments").json()["data"]["children"]
    assert {child["kind"] for child in page} == {"t1"}
    answers = [(child["data"]["name"][-1], child["data"]["parent_id"], child["data"]["link_id"]) for child in page]
    first, second = "t3_python00000", "t3_python00001"
    assert answers == [
        ("5", "t1_python00004", first), ("4", first, first), ("3", second, second),
        ("2", "t1_python00001", second), ("1", second, second), ("0", first, first),
    ]  # fmt: skip


def test_the_limit_counts_down_refuses_and_starts_anew(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Python")
    outside.reddit.limit(2, 600)
    answers = [reddit.get("r/python/about") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1.0", "0.0", "0.0"]
    assert all(590 < int(answer.headers["x-ratelimit-reset"]) <= 600 for answer in answers)
    assert outside.reddit.describe()["limit"]["refused"] == 1
    outside.reddit.limit(2, 600)
    assert reddit.get("r/python/about").status_code == 200


def test_what_nobody_may_read_is_told_as_reddit_tells_it(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Secret", standing="private")
    outside.reddit.forum.open("Gone", standing="banned")
    private, banned, unknown = (reddit.get(f"r/{name}/about") for name in ("secret", "gone", "unknown"))
    assert (private.status_code, private.json()["reason"]) == (403, "private")
    assert (banned.status_code, banned.json()["reason"]) == (404, "banned")
    assert (unknown.status_code, unknown.headers["location"]) == (302, "/subreddits/search?q=unknown")


def test_what_was_asked_and_served_is_told_until_it_is_cleared(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Python", posts=1)
    reddit.get("r/python/new")
    state = outside.describe()["reddit"]
    assert (state["served"], state["posts"]) == ({"python": 1}, ["t3_python00000"])
    assert [(visit.subreddit, visit.operation) for visit in outside.reddit.visits] == [("python", "new")]
    outside.clear()
    assert (outside.describe()["reddit"]["served"], outside.reddit.visits) == ({}, ())


def test_faults_meet_it_by_its_operations(outside: sandbox.Sandbox, reddit: httpx.Client) -> None:
    outside.reddit.forum.open("Python")
    outside.faults.order("reset_before", "hot")
    assert reddit.get("r/python/new").status_code == 200
    with pytest.raises(httpx.TransportError):
        reddit.get("r/python/hot")


def test_what_it_does_not_know_is_not_found(reddit: httpx.Client) -> None:
    assert reddit.get("r/python/rising").status_code == 404
    assert reddit.post("r/python/new").status_code == 404
