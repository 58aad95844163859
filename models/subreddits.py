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


class RedditBudget(Base):
    """What Reddit still allows one OAuth client, all processes together, until `resets_at`.

    `known` false: a window has begun of which no answer of Reddit's has told yet; one crawl is finding out.
    """

    __tablename__ = "reddit_budgets"

    client: Mapped[str] = mapped_column(Text, primary_key=True)
    remaining: Mapped[int] = mapped_column(Integer)
    resets_at: Mapped[datetime]
    known: Mapped[bool]
