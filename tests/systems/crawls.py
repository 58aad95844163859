"""Crawls as the tests see them: what became of one, and how to make its time come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.reddit import RedditApi
from tests.processes import Running, until
from tests.systems.stack import Stack

ROLES = ("crawl_subreddit", "enqueue_stale_subreddits")

#: Minutes of silence after which a crawl is taken from its worker: a few heartbeats.
RESET_AFTER = 0.05

#: Few enough at once for their order to be seen.
ENVIRON = {"RESET_CRAWLING_AFTER_MIN": str(RESET_AFTER), "REDDIT_CRAWLS_AT_ONCE": "2"}

LAST_WAIT = """
SELECT extract(epoch FROM t.scheduled_for - e.at) FROM worker_tasks t JOIN celeriac.task_events e ON e.task = t.id
WHERE t.task_id = :task ORDER BY e.id DESC LIMIT 1
"""


class Crawls:
    """A worker that crawls, which tests may kill and start again."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.rows, self.outside = stack, stack.rows, stack.outside
        self.reddit: RedditApi = stack.outside.reddit
        self.worker = self.new_worker()

    def new_worker(self) -> Running:
        self.worker = self.stack.worker(*ROLES, **ENVIRON)
        return self.worker

    def task(self, task_id: str) -> dict[str, Any]:
        ((row,),) = self.rows("SELECT to_jsonb(t) FROM worker_tasks t WHERE task_id = :task", task=task_id)
        return dict(row)

    def ends(self, task_id: str, status: str = "completed") -> dict[str, Any]:
        """Its row, once it has that status."""
        until(lambda: self.task(task_id)["status"] == status, f"the crawl to be {status}")
        return self.task(task_id)

    def events(self, task_id: str) -> list[str]:
        row = self.task(task_id)["id"]
        return [
            kind
            for (kind,) in self.rows("SELECT kind FROM celeriac.task_events WHERE task = :row ORDER BY id", row=row)
        ]

    def waits(self, task_id: str, *events: str) -> float:
        """Until it waits for its next attempt after these events; the seconds from the last one to it."""
        until(lambda: self.task(task_id)["waits_for"] == "time" and self.events(task_id) == [*events], " ".join(events))
        return float(str(self.rows.one(LAST_WAIT, task=task_id)))

    def go_on(self, task_id: str) -> None:
        """Its time has come."""
        now = "UPDATE worker_tasks SET scheduled_for = now() WHERE task_id = :task AND waits_for = 'time'"
        self.rows(now, task=task_id)

    def paused(self, is_paused: bool) -> None:
        self.rows("UPDATE celeriac.roles SET paused = :paused WHERE role = 'crawl_subreddit'", paused=is_paused)

    def new_window(self) -> None:
        """Reddit's limit is as it is by default, and nothing is known of it."""
        self.reddit.limit(1000, 600)
        self.rows("DELETE FROM reddit_budgets")

    def subreddit(self, name: str) -> dict[str, Any]:
        ((row,),) = self.rows("SELECT to_jsonb(s) FROM subreddits s WHERE name = :name", name=name)
        return dict(row)

    def posts(self, name: str) -> dict[str, str | None]:
        """The author of each stored post."""
        stored = """SELECT p.reddit_id, a.name FROM reddit_posts p JOIN subreddits s ON s.id = p.subreddit_id
            LEFT JOIN reddit_authors a ON a.id = p.author_id WHERE s.name = :name"""
        return {str(post): author for post, author in self.rows(stored, name=name)}

    def listing(self, name: str, order: str) -> list[Mapping[str, Any]]:
        """What Reddit has: posts, or comments."""
        page = self.reddit.forum.listing(name, order, {"limit": "100"})
        return [child["data"] for child in page["data"]["children"]]

    def told(self, name: str, order: str = "new") -> dict[str, str | None]:
        """The author of each post or comment that Reddit has, unless it is deleted."""
        things = self.listing(name, order)
        return {thing["name"]: None if thing["author"] == "[deleted]" else thing["author"] for thing in things}
