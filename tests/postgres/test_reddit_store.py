"""Crawls that see the same authors at once store them without waiting for each other for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier

from sqlalchemy.orm import Session

from celeriac.store.connections import Database
from tasks.reddit_answers import About, Post
from tasks.reddit_store import Seen, store
from tests.processes import Rows

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ABOUT = About("Name", "Title", "", 1, False, MOMENT)
ROUNDS = 20


def post(subreddit: int, n: int) -> Post:
    return Post(f"t3_{subreddit}x{n}", f"author{n}", None, "", "", "", 0, 0, False, MOMENT)


def test_two_crawls_with_the_same_authors_in_opposite_orders_both_commit(database: Database, rows: Rows) -> None:
    rows("INSERT INTO subreddits (name) SELECT 'one' || n FROM generate_series(1, 2) AS n")
    together = Barrier(2)

    def crawl(subreddit: int) -> None:
        posts = [post(subreddit, n) for n in range(200)]
        seen = Seen(ABOUT, posts if subreddit == 1 else posts[::-1])
        for _ in range(ROUNDS):
            together.wait()
            with Session(database.engine) as session, session.begin():
                store(session, subreddit, seen)

    with ThreadPoolExecutor(2) as crawls:
        list(crawls.map(crawl, (1, 2)))
    assert rows("SELECT count(DISTINCT author_id), count(*) FROM reddit_posts") == [(200, 400)]


def test_an_author_keeps_the_id_once_told(database: Database, rows: Rows) -> None:
    rows("INSERT INTO subreddits (name) VALUES ('one')")
    for told in ("t2_a", None):
        with Session(database.engine) as session, session.begin():
            seen = Post("t3_x", "somebody", told, "", "", "", 0, 0, False, MOMENT)
            assert store(session, 1, Seen(ABOUT, [seen])) == {"posts": 1, "comments": 0, "authors": 1}
    assert rows("SELECT reddit_id FROM reddit_authors") == [("t2_a",)]
