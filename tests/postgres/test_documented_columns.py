"""The tables that the documents print have their columns here, with what the documents say of each."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from celeriac.store.connections import Database
from tests import quoted
from tests.end_to_end.test_psql import psql
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished
from tests.postgres.stages import again, running, settled
from tests.processes import Rows

CRAWL = "crawl_subreddit"

COLUMNS = quoted.columns()

#: As the document writes it.
FAILED = quoted.statement("-- View failed tasks")


@pytest.mark.parametrize("table", COLUMNS)
def test_each_documented_column_is_there(rows: Rows, table: str) -> None:
    there = rows("SELECT column_name FROM information_schema.columns WHERE table_name = :table", table=table)
    assert set(COLUMNS[table]) - {name for (name,) in there} == set()


def test_a_crawl_job_has_the_documents_values(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(CRAWL, unique_key="7", priority=10, max_retries=3, enqueued_by="system"))
    shown = "SELECT subreddit_id, status, priority, retries, retry_count, max_retries, enqueued_by FROM crawl_jobs"
    assert rows(shown) == [(7, "crawling", 10, 0, 0, 3, "system")]
    settled(database, again(task, delay=60.0))
    wait = "next_retry_at = visible_at AND visible_at BETWEEN now() + interval '50 s' AND now() + interval '60 s'"
    assert rows(f"SELECT status, retries, retry_count, {wait}, last_attempt < now() FROM crawl_jobs") == [
        ("queued", 1, 1, True, True)
    ]
    rows("DELETE FROM worker_tasks")
    finished(rows, CRAWL, seconds=2)
    finished(rows, CRAWL, status="failed")
    ended = rows("SELECT status, duration_ms, next_retry_at FROM crawl_jobs ORDER BY id")
    assert ended == [("success", 2000, None), ("failed", 1000, None)]


def test_a_worker_task_has_the_documents_defaults(rows: Rows) -> None:
    rows("INSERT INTO worker_tasks (task_id, role) VALUES ('first', 'product_resync')")
    times = "claimed_at IS NULL AND started_at IS NULL AND completed_at IS NULL AND last_heartbeat_at IS NULL"
    shown = f"status, priority, retry_count, {times}, created_at <= now(), updated_at <= now()"
    assert rows(f"SELECT {shown} FROM worker_tasks") == [("pending", 0, 0, True, True, True)]


def test_the_store_and_its_platform_stand_in_the_view(rows: Rows) -> None:
    store = rows.one("INSERT INTO dispensaries (platform, menu_url, name) VALUES ('dutchie', 'u', 'n') RETURNING id")
    finished(rows, "product_resync", status="failed")
    rows("UPDATE worker_tasks SET kwargs = jsonb_build_object('dispensary_id', CAST(:s AS bigint))", s=store)
    ((_, role, dispensary, error, retries),) = rows(FAILED)
    assert (role, dispensary, error, retries) == ("product_resync", store, "why", 0)
    assert rows("SELECT platform FROM worker_tasks") == [("dutchie",)]


def test_who_claimed_when_and_who_runs_stand_in_the_view(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task("product_resync"))
    times = "created_at <= scheduled_for AND scheduled_for <= claimed_at AND claimed_at <= started_at"
    assert rows(f"SELECT id, worker_id, {times}, updated_at IS NOT NULL FROM worker_tasks") == [
        (task.id, "worker-1", True, True)
    ]


def test_a_scheduled_job_has_the_documents_defaults(rows: Rows) -> None:
    rows("INSERT INTO scheduled_jobs (name, target, cron_expression) VALUES ('daily', 'crawl_subreddit', '@daily')")
    times = "next_run_at IS NOT NULL AND created_at <= now() AND updated_at <= now() AND last_run_at IS NULL"
    assert rows(f"SELECT enabled, {times} FROM scheduled_jobs") == [(True, True)]
    with pytest.raises(IntegrityError, match="scheduled_jobs_name_unique"):
        rows("INSERT INTO scheduled_jobs (name, target, cron_expression) VALUES ('daily', 'other', '@daily')")


@pytest.mark.parametrize("table", ["agency_websites", "instasites"])
def test_a_build_in_progress_says_since_when(rows: Rows, table: str) -> None:
    account = rows.one("INSERT INTO accounts (name, email) VALUES ('Anna', 'anna@example.com') RETURNING id")
    site = f"INSERT INTO {table} (account_id, thumbnail_build_in_progress) VALUES (:account, true)"
    with pytest.raises(IntegrityError, match=f"{table}_thumbnail_in_progress_has_time"):
        rows(site, account=account)


def test_the_documents_statements_run_in_psql_with_nothing_set(rows: Rows, database_url: str) -> None:
    """Nor does a table that they name want a search path."""
    assert psql(database_url, "SHOW search_path") == ['"$user", public']
    statements = [statement for statement in quoted.statements() if not quoted.is_of_schema(statement)]
    tables = (f"SELECT {', '.join(names)} FROM {table};" for table, names in COLUMNS.items())
    for statement in (*statements, *tables):
        psql(database_url, statement)
    rows("""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES ('nightly', 'work', '@daily')""")
    (told,) = psql(database_url, "UPDATE scheduled_jobs SET enabled = false RETURNING name, enabled")
    assert told == "nightly|f"
