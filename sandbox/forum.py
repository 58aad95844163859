"""Reddit's subreddits, in memory: made up from their names, the same every time."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Standing = Literal["public", "private", "banned", "quarantined"]

#: What a page holds at most, and unless told otherwise.
PAGE, PAGE_DEFAULT = 100, 25

EPOCH = 1_700_000_000


class Missing(Exception):
    """A subreddit nobody may read. `reason` None: there is none of that name."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Community:
    """`posts` and `comments` as Reddit tells them, oldest first."""

    display_name: str
    standing: Standing
    posts: tuple[Mapping[str, Any], ...]
    comments: tuple[Mapping[str, Any], ...]


class Forum:
    """Every method is atomic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._communities: dict[str, Community] = {}

    def clear(self) -> None:
        with self._lock:
            self._communities.clear()

    def open(
        self, display_name: str, *, posts: int = 30, comments: int = 20, authors: int = 10,
        standing: Standing = "public",
    ) -> None:  # fmt: skip
        """A subreddit with so many of each by so many authors, some of whom write in others; or an old one anew."""
        made = tuple(_post(display_name, n, authors) for n in range(posts))
        said = tuple(_comment(display_name, n, authors, posts) for n in range(comments if posts else 0))
        with self._lock:
            self._communities[display_name.lower()] = Community(display_name, standing, made, said)

    def about(self, name: str) -> dict[str, Any]:
        """Raises Missing."""
        community = self._community(name)
        shown = community.display_name
        data = {
            "display_name": shown, "name": f"t5_{shown.lower()}", "id": shown.lower(), "title": f"All about {shown}",
            "public_description": f"Where {shown} is talked about.", "subscribers": 1000 + len(community.posts),
            "over18": False, "created_utc": float(EPOCH), "subreddit_type": community.standing,
        }  # fmt: skip
        return {"kind": "t5", "data": data}

    def listing(self, name: str, order: str, wanted: Mapping[str, str]) -> dict[str, Any]:
        """A page of posts or comments: `limit` of them `after` or `before` the one of that name. Raises Missing."""
        community = self._community(name)
        things = list(reversed(community.comments if order == "comments" else community.posts))
        if order == "hot":
            things.sort(key=lambda post: -post["score"])
        page, after, before = _page(things, wanted)
        children = [{"kind": thing["name"][:2], "data": thing} for thing in page]
        return {"kind": "Listing", "data": {"children": children, "after": after, "before": before, "dist": len(page)}}

    def _community(self, name: str) -> Community:
        with self._lock:
            found = self._communities.get(name.lower())
        if found is None or found.standing != "public":
            raise Missing(None if found is None else found.standing)
        return found


def _page(
    posts: list[Mapping[str, Any]], wanted: Mapping[str, str]
) -> tuple[list[Mapping[str, Any]], str | None, str | None]:
    """The page, and where to go on after it and before it."""
    names = [post["name"] for post in posts]
    limit = min(PAGE, max(1, int(wanted.get("limit", PAGE_DEFAULT))))
    end = names.index(wanted["before"]) if wanted.get("before") in names else len(posts)
    start = (
        names.index(wanted["after"]) + 1 if wanted.get("after") in names else max(0, end - limit) * (end < len(posts))
    )
    page = posts[start : min(end, start + limit)]
    more = start + len(page) < len(posts)
    return page, (page[-1]["name"] if page and more else None), (page[0]["name"] if page and start else None)


def _post(display_name: str, n: int, authors: int) -> Mapping[str, Any]:
    dice = random.Random(f"{display_name}/{n}")
    name = _name("t3", display_name, n)
    return _by(dice, display_name, n, authors) | {
        "name": name, "id": name[3:], "title": f"{display_name}, number {n}", "subreddit": display_name,
        "permalink": f"/r/{display_name}/comments/{name[3:]}/",
        "url": f"https://www.reddit.com/r/{display_name}/comments/{name[3:]}/", "score": dice.randrange(5000),
        "num_comments": dice.randrange(300), "over_18": False, "created_utc": float(EPOCH + 60 * n),
    }  # fmt: skip


def _comment(display_name: str, n: int, authors: int, posts: int) -> Mapping[str, Any]:
    """Every third answers the comment before it, the others a post."""
    dice = random.Random(f"{display_name}/comment {n}")
    name, post = _name("t1", display_name, n), _name("t3", display_name, (n - (n % 3 == 2)) % posts)
    return _by(dice, display_name, n, authors) | {
        "name": name, "id": name[3:], "subreddit": display_name, "link_id": post,
        "parent_id": _name("t1", display_name, n - 1) if n % 3 == 2 else post, "body": f"Comment {n}.",
        "permalink": f"/r/{display_name}/comments/{post[3:]}/_/{name[3:]}/", "score": dice.randrange(500),
        "created_utc": float(EPOCH + 60 * n + 30),
    }  # fmt: skip


def _name(kind: str, display_name: str, n: int) -> str:
    return f"{kind}_{display_name.lower()}{n:05}"


def _by(dice: random.Random, display_name: str, n: int, authors: int) -> dict[str, Any]:
    """The author of every tenth is deleted, and of every other fifth one of the few who write everywhere."""
    author = f"{'someone' if n % 5 == 1 else display_name}_{dice.randrange(authors)}"
    return {"author": "[deleted]"} if n % 10 == 9 else {"author": author, "author_fullname": f"t2_{author.lower()}"}
