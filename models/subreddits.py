"""Subreddits, and the posts and authors found there."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, Integer, Text, func, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from models.base import Base, Dated


class Subreddit(Dated, Base):
    """`name` is lower case, as Reddit ignores it. `checked_at`: when Reddit last told of it, if only that it is
    `unavailable` (private, banned, …); the epoch if never. `last_crawled_at`: when its posts were last stored.
    """

    __tablename__ = "subreddits"
    __table_args__ = (
        CheckConstraint("name = lower(name)", name="subreddits_name_lower"),
        Index("subreddits_stale", "checked_at", "id"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    display_name: Mapped[str | None] = mapped_column(Text)
    title: Mapped[str | None] = mapped_column(Text)
    description: Mapped[str | None] = mapped_column(Text)
    subscribers: Mapped[int | None] = mapped_column(BigInteger)
    over_18: Mapped[bool | None]
    founded_at: Mapped[datetime | None]
    unavailable: Mapped[str | None] = mapped_column(Text)
    checked_at: Mapped[datetime] = mapped_column(server_default=text("'epoch'"))
    last_crawled_at: Mapped[datetime | None]


class RedditAuthor(Dated, Base):
    """Somebody who posts. `reddit_id` is null where Reddit does not tell it."""

    __tablename__ = "reddit_authors"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    reddit_id: Mapped[str | None] = mapped_column(Text)
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RedditPost(Dated, Base):
    """A post as it was last seen. `author_id` null: Reddit does not tell who wrote it, or no longer."""

    __tablename__ = "reddit_posts"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    reddit_id: Mapped[str] = mapped_column(Text, unique=True)
    subreddit_id: Mapped[int] = mapped_column(ForeignKey("subreddits.id", ondelete="CASCADE"), index=True)
    author_id: Mapped[int | None] = mapped_column(ForeignKey("reddit_authors.id", ondelete="SET NULL"), index=True)
    title: Mapped[str] = mapped_column(Text)
    permalink: Mapped[str] = mapped_column(Text)
    url: Mapped[str] = mapped_column(Text)
    score: Mapped[int] = mapped_column(BigInteger)
    comments: Mapped[int] = mapped_column(BigInteger)
    over_18: Mapped[bool]
    posted_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())

    subreddit: Mapped[Subreddit] = relationship()
    author: Mapped[RedditAuthor | None] = relationship()


class RedditComment(Dated, Base):
    """A comment as it was last seen, without its text: who answers whom.

    `post` and `parent` are Reddit's ids of what may not be stored here; `author_id` null as of posts.
    """

    __tablename__ = "reddit_comments"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    reddit_id: Mapped[str] = mapped_column(Text, unique=True)
    subreddit_id: Mapped[int] = mapped_column(ForeignKey("subreddits.id", ondelete="CASCADE"), index=True)
    author_id: Mapped[int | None] = mapped_column(ForeignKey("reddit_authors.id", ondelete="SET NULL"), index=True)
    post: Mapped[str] = mapped_column(Text)
    parent: Mapped[str] = mapped_column(Text)
    score: Mapped[int] = mapped_column(BigInteger)
    posted_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())


class RedditBudget(Base):
    """What Reddit still allows one OAuth client, all processes together, until `resets_at`.

    `known` false: a window has begun of which no answer of Reddit's has told yet; one crawl is finding out.
    """

    __tablename__ = "reddit_budgets"

    client: Mapped[str] = mapped_column(Text, primary_key=True)
    remaining: Mapped[int] = mapped_column(Integer)
    resets_at: Mapped[datetime]
    known: Mapped[bool]


#: A schedule of a crawl refers to its subreddit: a column of the engine's table that says what the arguments say.
SCHEDULES_REFER = """
ALTER TABLE celeriac.scheduled_jobs ADD COLUMN subreddit_id bigint GENERATED ALWAYS AS (
    CASE WHEN target = 'crawl_subreddit'
        AND jsonb_typeof(coalesce(kwargs -> 'subreddit_id', options #> '{args,0}')) = 'number'
    THEN CAST(CAST(coalesce(kwargs ->> 'subreddit_id', options #>> '{args,0}') AS numeric) AS bigint) END
) STORED CONSTRAINT scheduled_jobs_subreddit_is_there REFERENCES subreddits (id)
"""

#: A subreddit that goes takes its schedules and the crawl that waits with it, whoever deletes it, and the audit trail
#: says so. It runs with the rights of the tables' owner: workers may not write that trail.
SUBREDDIT_GOES = """
CREATE OR REPLACE FUNCTION subreddit_goes() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reason CONSTANT text := concat('r/', OLD.name, ' was deleted');
BEGIN
    WITH gone AS (DELETE FROM celeriac.scheduled_jobs WHERE subreddit_id = OLD.id RETURNING *)
    INSERT INTO celeriac.audit (by, action, kind, target, before, why)
    SELECT session_user, 'delete', 'schedule', CAST(gone.id AS text), to_jsonb(gone), reason FROM gone;
    INSERT INTO celeriac.audit (by, action, kind, target, before, after, why)
    SELECT session_user, 'cancel', 'task', CAST(c.id AS text), jsonb_build_object('status', c.was),
        jsonb_build_object('status', 'cancelled'), reason
    FROM celeriac.cancel(ARRAY(
        SELECT u.id FROM celeriac.unfinished u
        WHERE u.role = 'crawl_subreddit' AND u.unique_key = CAST(OLD.id AS text) AND u.status <> 'running'
    ), 'cancel', reason, CAST(session_user AS text)) c;
    RETURN OLD;
END $$
"""

SUBREDDITS_GO = """
CREATE TRIGGER subreddits_go BEFORE DELETE ON subreddits FOR EACH ROW EXECUTE FUNCTION subreddit_goes()
"""

#: The edges of a map of users: who answered whom where, and how often.
REDDIT_ANSWERS = """
CREATE VIEW reddit_answers AS
SELECT c.subreddit_id, c.author_id, coalesce(post.author_id, parent.author_id) AS answered_id, count(*) AS comments
FROM reddit_comments c
LEFT JOIN reddit_posts post ON post.reddit_id = c.parent
LEFT JOIN reddit_comments parent ON parent.reddit_id = c.parent
WHERE c.author_id IS NOT NULL AND coalesce(post.author_id, parent.author_id) <> c.author_id
GROUP BY 1, 2, 3
"""

ROUTINES = (REDDIT_ANSWERS, SCHEDULES_REFER, SUBREDDIT_GOES, SUBREDDITS_GO)
