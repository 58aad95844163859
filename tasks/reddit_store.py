"""What a crawl saw, into the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from celeriac import Permanent
from models import RedditAuthor, RedditComment, RedditPost, Subreddit
from tasks.reddit_answers import About, Comment, Post

T = TypeVar("T")

Row = dict[str, Any]

#: Rows a statement.
BATCH = 500


@dataclass(frozen=True)
class Seen:
    """A subreddit as a crawl saw it; `posts` of all listings, and `comments`, each once."""

    about: About
    posts: Sequence[Post]
    comments: Sequence[Comment] = ()


def held(which: ColumnElement[bool]) -> Select[int]:
    """The id of that subreddit, which nobody deletes until the transaction ends."""
    return select(Subreddit.id).where(which).with_for_update(read=True, key_share=True)


def mark_unavailable(session: Session, subreddit_id: int, reason: str) -> None:
    """Until it is stale, and looked at again."""
    gone = {"unavailable": reason, "checked_at": func.clock_timestamp()}
    session.execute(update(Subreddit).where(Subreddit.id == subreddit_id).values(gone))


def store(session: Session, subreddit_id: int, seen: Seen) -> dict[str, int]:
    """In the crawl's transaction. The counts of what was seen. Raises Permanent if somebody deleted the subreddit."""
    if session.scalar(held(Subreddit.id == subreddit_id)) is None:
        raise Permanent(f"Subreddit {subreddit_id} not found")
    authors = store_authors(session, [*seen.posts, *seen.comments])
    _store(session, RedditPost, POST_CHANGES, _rows(subreddit_id, seen.posts, authors))
    _store(session, RedditComment, COMMENT_CHANGES, _rows(subreddit_id, seen.comments, authors))
    now = func.clock_timestamp()
    found = asdict(seen.about) | {"unavailable": None, "checked_at": now, "last_crawled_at": now}
    session.execute(update(Subreddit).where(Subreddit.id == subreddit_id).values(found))
    return {"posts": len(seen.posts), "comments": len(seen.comments), "authors": len(authors)}


def store_authors(session: Session, theirs: Iterable[Post | Comment]) -> dict[str, int]:
    """Their ids by name. All crawls write authors in one order: two with the same ones cannot block each other."""
    named = {one.author: one.author_id for one in theirs if one.author}
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
POST_CHANGES = ("author_id", "title", "url", "score", "comments", "over_18")
COMMENT_CHANGES = ("author_id", "score")


def _store(
    session: Session, table: type[RedditPost] | type[RedditComment], changes: Sequence[str], rows: Sequence[Row]
) -> None:
    for some in _batches(rows):
        new = insert(table).values(list(some))
        changed: Row = {name: new.excluded[name] for name in changes}
        again = changed | {"last_seen_at": func.clock_timestamp(), "updated_at": func.clock_timestamp()}
        session.execute(new.on_conflict_do_update(index_elements=["reddit_id"], set_=again))


def _rows(subreddit_id: int, seen: Sequence[Post] | Sequence[Comment], authors: dict[str, int]) -> list[Row]:
    rows = [asdict(one) for one in seen]
    return [row | {"subreddit_id": subreddit_id, "author_id": authors.get(row.pop("author"))} for row in rows]


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[i : i + BATCH] for i in range(0, len(items), BATCH))
