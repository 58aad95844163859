"""Subreddits through public names: a real worker and beat, Postgres and Redis, and the sandbox as Reddit."""

from __future__ import annotations

from collections import Counter

import pytest
from sqlalchemy.exc import IntegrityError

from celeriac.insights.fleet.metrics import metrics
from celeriac.schedules.listed import entries
from sandbox.forum import Standing
from tasks.app import app
from tasks.subreddits import BATCH, crawl, enqueue_stale, request_crawl
from tests.processes import until
from tests.systems.crawls import RESET_AFTER, Crawls

pytestmark = pytest.mark.usefixtures("as_new")

#: The seed's table: retry, shortest and longest delay in seconds.
RETRY_TABLE = [
    (1, 48, 72), (2, 96, 144), (3, 192, 288), (4, 384, 576), (5, 768, 1152),
    *((retry, 19.2 * 3600, 28.8 * 3600) for retry in (20, 21, 50, 1000)),
]  # fmt: skip


# -- what a crawl stores -----------------------------------------------------------------------------------------------


def test_a_crawl_stores_what_reddit_tells(crawls: Crawls, name: str) -> None:
    row = crawls.ends(request_crawl(f"/r/{name.title()}/").id)
    told = crawls.told(name)
    assert crawls.posts(name) == told
    said = crawls.told(name, "comments")
    authors = {*told.values(), *said.values()} - {None}
    assert row["result"] == {"posts": 30, "comments": 20, "authors": len(authors)}
    stored = crawls.subreddit(name)
    assert (stored["display_name"], stored["subscribers"], stored["unavailable"]) == (name.title(), 1030, None)
    assert min(stored["last_crawled_at"], stored["checked_at"]) > stored["created_at"]


EDGES = """
SELECT a.name, b.name, r.comments FROM reddit_answers r
JOIN reddit_authors a ON a.id = r.author_id JOIN reddit_authors b ON b.id = r.answered_id
WHERE r.subreddit_id = :subreddit
"""


def test_its_comments_tell_who_answers_whom(crawls: Crawls, name: str) -> None:
    """The edges of a map of users, as many comments each as there are between two of them."""
    crawls.ends(request_crawl(name).id)
    edges = crawls.rows(EDGES, subreddit=crawls.subreddit(name)["id"])
    authors = crawls.told(name, "new") | crawls.told(name, "comments")
    answers = ((authors[said["name"]], authors[said["parent_id"]]) for said in crawls.listing(name, "comments"))
    expected = Counter((who, whom) for who, whom in answers if who and whom and who != whom)
    assert {(who, whom): n for who, whom, n in edges} == expected
    assert len(expected) > 5


def test_a_subreddit_is_crawled_again_and_what_is_known_is_renewed(crawls: Crawls, name: str) -> None:
    first = request_crawl(name)
    crawls.ends(first.id)
    before = crawls.subreddit(name)["last_crawled_at"]
    crawls.rows("UPDATE reddit_posts SET score = -1, author_id = NULL")
    crawls.reddit.forum.open(name.title(), posts=45)
    again = request_crawl(name)
    assert again.is_new
    assert again.id != first.id
    crawls.ends(again.id)
    assert crawls.posts(name) == crawls.told(name)
    assert len(crawls.posts(name)) == 45
    assert crawls.rows("SELECT FROM reddit_posts WHERE reddit_id LIKE :its AND score < 0", its=f"t3_{name}%") == []
    assert crawls.subreddit(name)["last_crawled_at"] > before


CRAWL_JOBS = """
CREATE SCHEMA seed;
CREATE TABLE seed.crawl_jobs (subreddit_id INTEGER NOT NULL UNIQUE, status TEXT NOT NULL DEFAULT 'queued')
"""


def test_the_documents_own_constraint_forbade_that_for_ever(crawls: Crawls, name: str) -> None:
    crawls.rows(CRAWL_JOBS)
    crawls.rows("INSERT INTO seed.crawl_jobs VALUES (1, 'success')")
    with pytest.raises(IntegrityError, match="crawl_jobs_subreddit_id_key"):
        crawls.rows("INSERT INTO seed.crawl_jobs VALUES (1)")
    for _ in range(3):
        assert crawls.ends(request_crawl(name).id)["status"] == "completed"


@pytest.mark.parametrize("standing", ["private", "banned", "quarantined", None])
def test_a_subreddit_nobody_may_read_fails_at_once(crawls: Crawls, name: str, standing: Standing | None) -> None:
    asked = name if standing else f"no_{name}"
    if standing:
        crawls.reddit.forum.open(name.title(), standing=standing)
    row = crawls.ends(request_crawl(asked).id, "failed")
    reason = standing or "not found"
    assert (row["error_message"], row["retry_count"]) == (f"Permanent: r/{asked} cannot be read: {reason}", 0)
    stored = crawls.subreddit(asked)
    assert (stored["unavailable"], stored["last_crawled_at"], crawls.posts(asked)) == (reason, None, {})
    crawls.reddit.forum.open(asked.title())
    crawls.ends(request_crawl(asked).id)
    assert crawls.subreddit(asked)["unavailable"] is None


@pytest.mark.parametrize(("retry", "shortest", "longest"), RETRY_TABLE)
def test_10_000_delays_lie_in_the_table_and_are_not_all_alike(retry: int, shortest: float, longest: float) -> None:
    assert crawl.role.backoff
    drawn = [crawl.role.backoff.seconds(retry - 1) for _ in range(10_000)]
    assert shortest <= min(drawn) < shortest * 1.02
    assert longest * 0.98 < max(drawn) <= longest
    assert len(set(drawn)) > 9_000


def test_a_crawl_is_retried_three_times_and_has_failed_then(crawls: Crawls, name: str) -> None:
    for fault in ("server_error", "reset_before", "server_error", "server_error"):
        crawls.outside.faults.order(fault, "new")
    asked = request_crawl(name)
    for retry, shortest, longest in RETRY_TABLE[:3]:
        assert shortest - 0.1 <= crawls.waits(asked.id, *["retry"] * retry) <= longest + 0.1
        crawls.go_on(asked.id)
    row = crawls.ends(asked.id, "failed")
    assert (row["retry_count"], crawls.events(asked.id)) == (3, ["retry", "retry", "retry", "failed"])
    assert crawls.posts(name) == {}


def test_a_crawl_with_more_retries_waits_about_a_day_in_the_end(crawls: Crawls, name: str) -> None:
    crawls.paused(True)
    request_crawl(name)
    subreddit = crawls.subreddit(name)["id"]
    app.cancel(crawls.rows.one("SELECT task_id FROM worker_tasks WHERE unique_key = :key", key=str(subreddit)))
    asked = crawl.using(max_retries=25).delay(subreddit_id=subreddit)
    crawls.rows("UPDATE worker_tasks SET retry_count = 19 WHERE task_id = :task", task=asked.id)
    crawls.outside.faults.order("server_error", "about")
    crawls.paused(False)
    assert 19.2 * 3600 - 1 <= crawls.waits(asked.id, "retry") <= 28.8 * 3600 + 1
    assert not request_crawl(name).is_new
    crawls.go_on(asked.id)
    assert crawls.ends(asked.id)["retry_count"] == 20


# -- Reddit's limit ----------------------------------------------------------------------------------------------------


def test_an_exhausted_limit_is_waited_for_without_a_request_or_an_attempt(crawls: Crawls, name: str) -> None:
    crawls.reddit.limit(4, 100)
    crawls.ends(request_crawl(name).id)
    other = f"{name}_other"
    crawls.reddit.forum.open(other.title())
    asked = request_crawl(other)
    assert crawls.waits(asked.id, "snooze") == pytest.approx(101, abs=5)
    assert (crawls.task(asked.id)["retry_count"], crawls.reddit.describe()["limit"]["refused"]) == (0, 0)
    assert not [visit for visit in crawls.reddit.visits if visit.subreddit == other]
    crawls.new_window()
    crawls.go_on(asked.id)
    crawls.ends(asked.id)


def test_a_429_is_waited_for_as_long_as_it_says(crawls: Crawls, name: str) -> None:
    crawls.outside.faults.change({"retry_after": 77, "orders": [{"kind": "rate_limited", "operation": "hot"}]})
    asked = request_crawl(name)
    assert crawls.waits(asked.id, "snooze") == pytest.approx(77, abs=0.5)
    assert crawls.task(asked.id)["retry_count"] == 0
    crawls.go_on(asked.id)
    crawls.ends(asked.id)


# -- stuck and stale ---------------------------------------------------------------------------------------------------


def test_a_crawl_of_a_dead_worker_is_done_by_another(crawls: Crawls, name: str) -> None:
    crawls.ends(request_crawl(name).id)
    seen = len(crawls.reddit.visits)
    crawls.outside.faults.change({"hang_seconds": 60, "orders": [{"kind": "hang_before", "operation": "about"}]})
    asked = request_crawl(name)
    until(lambda: len(crawls.reddit.visits) > seen, "the crawl's first request")
    crawls.worker.kill()
    crawls.new_worker()
    crawls.waits(asked.id, "rescue")
    crawls.go_on(asked.id)
    row = crawls.ends(asked.id)
    assert (row["losses"], row["retry_count"], crawls.events(asked.id)) == (1, 0, ["rescue"])


def test_a_long_crawl_of_a_worker_that_lives_is_never_reset(crawls: Crawls, name: str) -> None:
    longer = RESET_AFTER * 60 * 1.5
    crawls.outside.faults.change({"hang_seconds": longer, "orders": [{"kind": "hang_before", "operation": "about"}]})
    asked = request_crawl(name)
    crawls.waits(asked.id, "retry")
    assert crawls.task(asked.id)["losses"] == 0


MADE = """
INSERT INTO subreddits (name, checked_at, unavailable)
SELECT :name || '_' || kind || n, now() - age * interval '1 day', unavailable FROM (
    VALUES ('old', 31, NULL, :old), ('fresh', 29, NULL, 1), ('gone', 31, 'banned', 1), ('never', 20000, NULL, 1)
) AS k (kind, age, unavailable, many), generate_series(1, many) AS n
"""


def test_what_is_stale_is_enqueued_once_and_what_waits_stays_as_it_is(crawls: Crawls, name: str) -> None:
    crawls.rows("UPDATE subreddits SET checked_at = now()")
    crawls.paused(True)
    crawls.rows(MADE, name=name, old=BATCH)
    waiting = request_crawl(f"{name}_old7")
    result = crawls.ends(enqueue_stale.delay().id)["result"]
    assert result == {"stale": BATCH + 2, "enqueued": BATCH + 1}
    enqueued = """SELECT count(*), count(DISTINCT unique_key), sum(priority) FROM worker_tasks
        WHERE role = 'crawl_subreddit' AND status = 'pending' AND unique_key IN (
            SELECT CAST(id AS text) FROM subreddits WHERE name LIKE :its)"""
    its = f"{name}\\_%"
    assert crawls.rows(enqueued, its=its) == [(BATCH + 2, BATCH + 2, crawls.task(waiting.id)["priority"])]
    assert crawls.ends(enqueue_stale.delay().id)["result"] == {"stale": BATCH + 2, "enqueued": 0}
    crawls.rows("DELETE FROM worker_tasks WHERE role = 'crawl_subreddit' AND status = 'pending'")


def test_beat_enqueues_what_is_stale_every_six_hours(crawls: Crawls, name: str) -> None:
    entry = entries(app)["stale subreddits"]
    assert (entry.target, entry.cron_expression, entry.overlap) == ("enqueue_stale_subreddits", "0 */6 * * *", "skip")
    until(lambda: crawls.rows("SELECT FROM celeriac.scheduled_jobs WHERE name = 'stale subreddits'"), "beat's config")
    crawls.rows("UPDATE subreddits SET checked_at = now()")
    crawls.rows("INSERT INTO subreddits (name) VALUES (:name)", name=name)
    schedule = """UPDATE celeriac.scheduled_jobs SET cron_expression = '@every 500ms', enabled = :on
        WHERE name = 'stale subreddits'"""
    crawls.rows(schedule, on=True)
    until(lambda: crawls.posts(name) == crawls.told(name), "the crawl of what was never crawled")
    crawls.rows(schedule, on=False)


# -- what operators see ------------------------------------------------------------------------------------------------


def test_the_metrics_tell_of_crawls(crawls: Crawls, name: str) -> None:
    """Last: of what the tests before it have left."""
    crawls.outside.faults.order("server_error", "about")
    retried = request_crawl(name)
    crawls.waits(retried.id, "retry")
    crawls.go_on(retried.id)
    crawls.ends(retried.id)
    crawls.ends(request_crawl(f"no_{name}").id, "failed")
    crawls.paused(True)
    request_crawl(f"{name}_waits")
    with app.database.statement() as connection:
        (told,) = metrics(connection, "crawl_subreddit")
    assert 0 < told["failed_rate"] < 1
    assert 0 < told["retry_success_rate"] <= 1
    assert told["average_wait"] >= 0
    assert sum(told["priorities"].values()) == told["queue_depth"] >= told["priorities"][60] >= 1
