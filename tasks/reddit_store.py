"""What a crawl saw, into the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from sqlalchemy import func, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from models import RedditAuthor, RedditPost, Subreddit
from tasks.reddit_answers import About, Post

T = TypeVar("T")

#: Rows a statement.
BATCH = 500


@dataclass(frozen=True)
class Seen:
    """A subreddit as a crawl saw it; `posts` of all listings, each once."""

    about: About
    posts: Sequence[Post]


def mark_unavailable(session: Session, subreddit_id: int, reason: str) -> None:
    """Until it is stale, and looked at again."""
    gone = {"unavailable": reason, "checked_at": func.clock_timestamp()}
    session.execute(update(Subreddit).where(Subreddit.id == subreddit_id).values(gone))


def store(session: Session, subreddit_id: int, seen: Seen) -> dict[str, int]:
    """In the crawl's transaction. The counts of what was seen."""
    authors = store_authors(session, seen.posts)
    store_posts(session, subreddit_id, seen.posts, authors)
    now = func.clock_timestamp()
    found = asdict(seen.about) | {"unavailable": None, "checked_at": now, "last_crawled_at": now}
    session.execute(update(Subreddit).where(Subreddit.id == subreddit_id).values(found))
    return {"posts": len(seen.posts), "authors": len(authors)}


def store_authors(session: Session, posts: Iterable[Post]) -> dict[str, int]:
    """Their ids by name. All crawls write authors in one order: two with the same ones cannot block each other."""
    named = {post.author: post.author_id for post in posts if post.author}
    ids: dict[str, int] = {}
    for some in _batches(sorted(named)):
        new = insert(RedditAuthor).values([{"name": name, "reddit_id": named[name]} for name in some])
        again = {
            "reddit_id": func.coalesce(new.excluded.reddit_id, RedditAuthor.reddit_id),
            "last_seen_at": func.clock_timestamp(), "updated_at": func.clock_timestamp(),
        }  # fmt: skip
        kept = new.on_conflict_do_update(index_elements=["name"], set_=again)
        ids |= {row.name: row.id for row in session.execute(kept.returning(RedditAuthor.name, RedditAuthor.id))}
    return ids


#: What a later look may find changed.
CHANGES = ("author_id", "title", "url", "score", "comments", "over_18")


def store_posts(session: Session, subreddit_id: int, posts: Sequence[Post], authors: dict[str, int]) -> None:
    for some in _batches(posts):
        new = insert(RedditPost).values([_row(subreddit_id, post, authors) for post in some])
        changed: dict[str, Any] = {name: new.excluded[name] for name in CHANGES}
        again = changed | {"last_seen_at": func.clock_timestamp(), "updated_at": func.clock_timestamp()}
        session.execute(new.on_conflict_do_update(index_elements=["reddit_id"], set_=again))


def _row(subreddit_id: int, post: Post, authors: dict[str, int]) -> dict[str, Any]:
    row = asdict(post)
    return row | {"subreddit_id": subreddit_id, "author_id": authors.get(row.pop("author"))}


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[i : i + BATCH] for i in range(0, len(items), BATCH))
