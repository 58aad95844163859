"""Subreddits: crawl what Reddit shows of each, store posts, comments and their authors, and come back when it is stale.

A subreddit has one crawl at a time, waiting or running, and may be crawled again after it. Users' crawls have
priority 50 to 70, scheduled ones 10 to 30, those in the background 0. A crawl that fails is retried after 1 minute
× 2^n, ±20 %, at most a day; one that meets Reddit's limit waits for it and has not failed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Row, func, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from celeriac import ONE, Permanent, Task, days
from celeriac.seam.task import Enqueued
from models import Subreddit
from tasks.app import app
from tasks.environment import number, whole
from tasks.pace import waiting_out_limits
from tasks.reddit import LISTINGS, Reddit, RedditSettings, subreddit_name
from tasks.reddit_answers import Post, SubredditGone
from tasks.reddit_budget import Budget
from tasks.reddit_store import Seen, held, mark_unavailable, store

#: What users ask for; the background has 0.
USERS_PRIORITY = 60

#: Crawls claimed or running at once; the rest waits in SQL, where users' crawls still pass the others.
AT_ONCE = whole("REDDIT_CRAWLS_AT_ONCE", 8, at_least=1)

#: Before the first retry (seconds); the next ones double it up to the longest.
RETRY_AFTER = number("REDDIT_RETRY_SECONDS", 60, at_least=0.1)
LONGEST_RETRY = 86_400

#: After the first attempt, unless a call or a schedule says otherwise.
RETRIES = 3

#: A running crawl whose worker was silent for so long (minutes) waits again. One that lives is never reset.
RESET_AFTER = number("RESET_CRAWLING_AFTER_MIN", 15, at_least=0.01)

#: A subreddit Reddit has not told of for so long (days) is stale.
STALE_DAYS = number("STALE_DAYS", 30, at_least=0)

#: Requests of each of Reddit's windows that are left alone: for the crawls under way when one ends.
RESERVE = whole("REDDIT_BUDGET_RESERVE", 10, at_least=0)

#: Subreddits a statement of the stale ones' pass.
BATCH = 500

# Null is without end, and stays so.
RAISE_RETRIES = text("""
UPDATE celeriac.worker_tasks SET max_retries = :retries
WHERE task_id = :task AND status = 'pending' AND max_retries < :retries
""")


@app.task(
    bind=True, role="crawl_subreddit", lock_by="subreddit_id", unique_by="subreddit_id",
    priority_range=(0, 100), batch_size=AT_ONCE, window=AT_ONCE, chunk=1, autoretry_for=(Exception,),
    max_retries=RETRIES, retry_backoff=RETRY_AFTER, retry_backoff_max=LONGEST_RETRY, retry_jitter=0.2, timeout=600,
    stale_after=RESET_AFTER * 60, keep=days(7),
)  # fmt: skip
def crawl(self: Task[..., Any], subreddit_id: int) -> dict[str, int]:
    """Stores what Reddit shows of the subreddit, all at once. Safe to repeat: what is known is renewed."""
    try:
        with waiting_out_limits(self):
            seen = look(self, subreddit_id)
    except SubredditGone as gone:
        with self.early_commit() as session:  # nothing a failed crawl writes would commit
            mark_unavailable(session, subreddit_id, gone.reason)
        raise Permanent(str(gone)) from gone
    return store(self.session, subreddit_id, seen)


def look(task: Task[..., Any], subreddit_id: int) -> Seen:
    """Asks Reddit, with no transaction open meanwhile. Raises RedditError, and Permanent for an unknown subreddit."""
    name = _name(subreddit_id)
    reddit, budget, needed = _reddit(os.getpid())
    with budget.admit(needed) as allowance, reddit.metered(allowance):
        about = reddit.about(name)
        posts: dict[str, Post] = {}
        for listing in LISTINGS:
            posts |= {post.reddit_id: post for post in reddit.posts(name, listing)}
            task.progress({"posts": len(posts)})
        comments = {comment.reddit_id: comment for comment in reddit.comments(name)}
    return Seen(about, list(posts.values()), list(comments.values()))


@cache
def _reddit(_pid: int) -> tuple[Reddit, Budget, int]:
    """This process's client, the limit it shares with the others, and what a crawl needs of it."""
    settings = RedditSettings.from_env()
    budget = Budget(app.database, settings.client_id, reserve=RESERVE, patience=settings.timeout_seconds)
    return Reddit(settings), budget, settings.requests_per_crawl


def _name(subreddit_id: int) -> str:
    with app.database.statement() as connection:
        name = connection.scalar(select(Subreddit.name).where(Subreddit.id == subreddit_id))
    if name is None:
        raise Permanent(f"Subreddit {subreddit_id} not found")
    return str(name)


# -- asking for crawls -------------------------------------------------------------------------------------------------


def request_crawl(
    subreddit: str, priority: int = USERS_PRIORITY, session: Session | None = None, *, max_retries: int = RETRIES
) -> Enqueued:
    """A crawl of the subreddit of that name, which is remembered if it is new.

    One that waits already is the one; it takes this priority, and as many retries, if its own are fewer. In
    `session`'s transaction if given. Raises ValueError for what names no subreddit, and BadArguments for a priority
    outside 0 to 100 or fewer retries than 0.
    """
    if session is None:
        with Session(app.database.engine) as own, own.begin():
            return request_crawl(subreddit, priority, own, max_retries=max_retries)
    call = crawl.using(priority=priority, max_retries=max_retries, session=session)
    found = call.delay(remember(session, subreddit_name(subreddit)))
    if not found.is_new:
        app.prioritise(found.id, priority, only_raise=True, by="request_crawl", session=session)
        session.execute(RAISE_RETRIES, {"task": found.id, "retries": max_retries})
    return found


def remember(session: Session, name: str) -> int:
    """The id of the subreddit of that (lower-case) name, made if there is none; not deleted before what is enqueued."""
    while (known := session.scalar(held(Subreddit.name == name))) is None:
        session.execute(insert(Subreddit).values(name=name).on_conflict_do_nothing())
    return known


@app.task(
    bind=True, role="enqueue_stale_subreddits", unique_by=ONE, autoretry_for=(Exception,), max_retries=3,
    retry_backoff=60, timeout=600, keep=days(7),
)  # fmt: skip
def enqueue_stale(self: Task[..., Any]) -> dict[str, int]:
    """A crawl at priority 0 for each subreddit Reddit has not told of for STALE_DAYS, those unseen longest first.

    In batches, each committed by itself; one that is queued or being crawled stays as it is.
    """
    stale = enqueued = 0
    place = datetime(1970, 1, 1, tzinfo=UTC), 0
    while batch := _enqueue_some(place):
        found, new = batch
        stale, enqueued, place = stale + len(found), enqueued + new, (found[-1].checked_at, found[-1].id)
        self.raise_if_cancelled()
    return {"stale": stale, "enqueued": enqueued}


def _enqueue_some(place: tuple[datetime, int]) -> tuple[Sequence[Row[Any]], int] | None:
    """The next stale ones after that place, and how many of them were not waiting yet."""
    with Session(app.database.engine) as session, session.begin():
        found = session.execute(_stale(place)).all()
        receipts = crawl.bulk([{"subreddit_id": row.id} for row in found], session=session)
    return (found, sum(bool(receipt.is_new) for receipt in receipts)) if found else None


def _stale(place: tuple[datetime, int]) -> Any:
    checked = Subreddit.checked_at
    return (
        select(Subreddit.id, checked)
        .where(checked < func.statement_timestamp() - timedelta(days=STALE_DAYS))
        .where(tuple_(checked, Subreddit.id) > place)
        .order_by(checked, Subreddit.id)
        .limit(BATCH)
        .with_for_update(read=True, key_share=True)
    )
