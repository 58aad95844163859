"""Crawl jobs and their schedules refer to subreddits that are there, and are taken in the order of their document."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from celeriac import Celeriac, Permanent
from celeriac.enqueue.rows import NewTask
from celeriac.schedules import enqueuing
from celeriac.schedules.timetable import Timetable
from celeriac.store.connections import Database
from tasks.reddit_answers import About
from tasks.reddit_store import Seen, store
from tasks.subreddits import remember
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, enqueued, running
from tests.processes import Rows, until

CRAWL = "crawl_subreddit"

SCHEDULE = """
INSERT INTO celeriac.scheduled_jobs (name, target, kwargs, options, cron_expression)
VALUES ('daily', 'crawl_subreddit', CAST(:kwargs AS jsonb), CAST(:options AS jsonb), '@daily')
"""

AUDIT = "SELECT by = session_user, action, kind, why FROM celeriac.audit ORDER BY id"


def subreddit(rows: Rows, name: str = "python") -> int:
    return int(str(rows.one("INSERT INTO subreddits (name) VALUES (:name) RETURNING id", name=name)))


def crawl_of(subreddit_id: int, **options: Any) -> NewTask:
    return new_task(CRAWL, kwargs={"subreddit_id": subreddit_id}, unique_key=str(subreddit_id), **options)


# -- a subreddit that is not there -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kwargs", "options"), [('{"subreddit_id": 7}', "{}"), ("{}", '{"args": [7]}')])
def test_a_schedule_of_a_subreddit_that_is_not_there_is_refused(rows: Rows, kwargs: str, options: str) -> None:
    with pytest.raises(IntegrityError, match=r"Key \(subreddit_id\)=\(7\) is not present in table"):
        rows(SCHEDULE, kwargs=kwargs, options=options)
    rows("INSERT INTO subreddits (id, name) VALUES (7, 'python')")
    rows(SCHEDULE, kwargs=kwargs, options=options)
    assert rows("SELECT subreddit_id FROM celeriac.scheduled_jobs") == [(7,)]


def test_a_beat_whose_config_names_one_runs_the_rest(
    app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    app.schedules = [enqueuing("lost", "@daily", CRAWL, {"subreddit_id": 7}), enqueuing("sound", "@daily", "work")]
    Timetable(app).install()
    assert rows("SELECT name FROM celeriac.scheduled_jobs WHERE kind = 'task'") == [("sound",)]
    left_out = "The schedule 'lost' of the beat config was left out: Key (subreddit_id)=(7) is not present"
    assert left_out in caplog.text


def test_a_crawl_whose_subreddit_is_deleted_meanwhile_stores_nothing(database: Database) -> None:
    about = About("Python", "", "", 1, False, datetime(2026, 1, 1, tzinfo=UTC))
    with Session(database.engine) as session, session.begin(), pytest.raises(Permanent, match="7 not found"):
        store(session, 7, Seen(about, []))


# -- a subreddit that goes ---------------------------------------------------------------------------------------------


def test_a_subreddit_that_goes_takes_its_schedule_and_the_crawl_that_waits(database: Database, rows: Rows) -> None:
    gone, other = subreddit(rows), subreddit(rows, "rust")
    rows(SCHEDULE, kwargs=f'{{"subreddit_id": {gone}}}', options="{}")
    enqueued(database, crawl_of(gone), crawl_of(other))
    rows("DELETE FROM subreddits WHERE id = :gone", gone=gone)
    assert rows("SELECT FROM celeriac.scheduled_jobs") == []
    assert rows("SELECT subreddit_id, status FROM crawl_jobs ORDER BY id") == [(gone, "failed"), (other, "queued")]
    why = "r/python was deleted"
    assert rows(AUDIT) == [(True, "delete", "schedule", why), (True, "cancel", "task", why)]
    was = "SELECT before ->> 'name', before ->> 'cron_expression' FROM celeriac.audit WHERE kind = 'schedule'"
    assert rows(was) == [("daily", "@daily")]


def test_the_crawl_that_runs_is_left_to_find_out_itself(database: Database, rows: Rows) -> None:
    """Its worker holds its ticket, and writes the subreddit's row."""
    here = subreddit(rows)
    running(database, crawl_of(here))
    rows("DELETE FROM subreddits WHERE id = :here", here=here)
    assert rows("SELECT status FROM crawl_jobs") == [("crawling",)]
    assert rows("SELECT FROM celeriac.audit") == []


def test_who_asks_for_a_crawl_keeps_its_subreddit_until_it_is_enqueued(database: Database, rows: Rows) -> None:
    here = subreddit(rows)
    deletes = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'DELETE%%' AND wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as other, Session(database.engine) as session, session.begin():
        assert remember(session, "python") == here
        deleted = other.submit(Rows(database.url), "DELETE FROM subreddits")
        until(lambda: rows.one(deletes), "the deletion to wait")
        enqueued(database, crawl_of(here))
        session.commit()
        deleted.result()
    assert rows("SELECT status FROM crawl_jobs") == [("failed",)]


# -- the order ---------------------------------------------------------------------------------------------------------

ORDER = """
SELECT id FROM crawl_jobs WHERE status = 'queued' AND visible_at <= now() ORDER BY priority DESC, created_at ASC
"""


def test_jobs_are_claimed_by_priority_and_then_by_age(database: Database, rows: Rows) -> None:
    """The document's `ORDER BY priority DESC, created_at ASC`, also after operators changed priorities."""
    dice = random.Random(4)
    for n in range(24):
        enqueued(database, crawl_of(n, priority=dice.choice((0, 10, 60))))
    rows("UPDATE worker_tasks SET priority = 50 WHERE id IN (3, 17, 9)")
    order = [job for (job,) in rows(ORDER)]
    assert [claimed(database, CRAWL)[0] for _ in order] == [[job] for job in order]
    assert len(order) == 24
