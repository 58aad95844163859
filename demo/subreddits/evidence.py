"""Reads what happened: from the tables, and from what the sandbox was asked and served."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import Connection, text

from demo.subreddits.verdicts import Crawl, Deleted, Evidence, Stored, Visiting, Wish
from sandbox.reddit import RedditApi, Visit

PROGRESS = text("""
SELECT count(*) FILTER (WHERE status = 'completed') AS completed, count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE status IN ('claimed', 'running')) AS active,
    count(*) FILTER (WHERE status = 'pending' AND waits_for IS NOT NULL) AS later,
    count(*) FILTER (WHERE status IN ('pending', 'claimed', 'running')) AS unfinished
FROM worker_tasks WHERE role = 'crawl_subreddit'
""")

WAITING = text("SELECT count(*) FROM worker_tasks WHERE role = 'crawl_subreddit' AND status = 'pending'")

CRAWLS = text("""
SELECT s.name, t.status, t.retry_count, (
    SELECT count(*) FROM celeriac.task_events e WHERE e.task = t.id AND e.kind = 'snooze') AS snoozes, (
    SELECT extract(epoch FROM min(e.at))::float FROM celeriac.task_events e
    WHERE e.task = t.id AND e.kind IN ('snooze', 'retry')) AS put_off
FROM worker_tasks t JOIN subreddits s ON CAST(s.id AS text) = t.unique_key
WHERE t.role = 'crawl_subreddit' ORDER BY t.id
""")

STORED = text("""
SELECT t.reddit_id, a.name AS author FROM (
    SELECT reddit_id, author_id FROM reddit_posts UNION ALL SELECT reddit_id, author_id FROM reddit_comments
) t LEFT JOIN reddit_authors a ON a.id = t.author_id
""")

DELETED = text("""
SELECT count(*) FILTER (WHERE kind = 'schedule' AND action = 'delete') AS schedules,
    count(*) FILTER (WHERE kind = 'task' AND action = 'cancel') AS crawls
FROM celeriac.audit WHERE why = concat('r/', CAST(:name AS text), ' was deleted')
""")

NOW = text("SELECT extract(epoch FROM clock_timestamp())::float")


@dataclass(frozen=True)
class Progress:
    completed: int
    failed: int
    active: int
    later: int
    unfinished: int

    def __str__(self) -> str:
        waiting = self.unfinished - self.active - self.later
        return f"crawled {self.completed:2}, under way {self.active}, waiting {waiting:2}, for later {self.later:2}"


def progress(connection: Connection) -> Progress:
    return Progress(*connection.execute(PROGRESS).one())


def waiting(connection: Connection) -> int:
    return int(connection.execute(WAITING).scalar_one())


def now(connection: Connection) -> float:
    return float(connection.execute(NOW).scalar_one())


def gather(
    connection: Connection, reddit: RedditApi, names: Sequence[str], deleted: str, wishes: Sequence[Wish], at_once: int
) -> Evidence:
    stored = {row.reddit_id: row.author for row in connection.execute(STORED)}
    told = reddit.describe()
    return Evidence(
        names=[name.lower() for name in names],
        crawls=[Crawl(*row) for row in connection.execute(CRAWLS)],
        stored=Stored(stored, {*told["posts"], *told["comments"]}, _told(reddit, names)),
        deleted=Deleted(*connection.execute(DELETED, {"name": deleted.lower()}).one()),
        visits=list(visits(reddit.visits)),
        wishes=wishes,
        at_once=at_once,
        limit=told["limit"],
    )


def _told(reddit: RedditApi, names: Sequence[str]) -> dict[str, str | None]:
    """All posts and comments there are, with their authors."""
    pages = [reddit.forum.listing(name, order, {"limit": "100"}) for name in names for order in ("new", "comments")]
    things = [child["data"] for page in pages for child in page["data"]["children"]]
    return {thing["name"]: None if thing["author"] == "[deleted]" else thing["author"] for thing in things}


def visits(requests: Sequence[Visit]) -> Iterator[Visiting]:
    """A worker's process has a token of its own and asks *about* first: where one crawl ends and another begins."""

    def whose(visit: Visit) -> tuple[str, int]:
        return visit.subreddit, visit.token

    for (name, token), asked in groupby(sorted(requests, key=lambda v: (*whose(v), v.at)), key=whose):
        times: list[float] = []
        for visit in asked:
            if visit.operation == "about" and times:
                yield Visiting(name, token, times[0], times[-1])
                times = []
            times.append(visit.at)
        yield Visiting(name, token, times[0], times[-1])


def summary(found: Evidence) -> str:
    retried, snoozed = sum(crawl.retries for crawl in found.crawls), sum(crawl.snoozes for crawl in found.crawls)
    limit = found.limit
    return "\n".join(
        [
            f"crawls   {len(found.crawls)}, retried {retried} times, and {snoozed} times put off for the limit",
            f"Reddit   {limit['windows']} windows of {limit['requests']} requests; {limit['most']} at most were used",
            f"stored   {found.stored.counted}, {len(found.stored.authors)} authors",
        ]
    )
