"""A day's resyncs are planned, and the systems before are stopped: in SQL and Python, without any worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac.store import look
from celeriac.store.connections import Database
from models import DispensaryCrawlJob, JobRunLog, JobSchedule
from tasks import legacy
from tasks.app import app
from tasks.stores import RESYNC_EVERY, generate_resync_tasks, product_resync
from tests.processes import Rows
from tests.systems.stack import on_servers

#: In the future, so that nothing is due.
DAY = "2125-01-10"

PLANNED = """
SELECT extract(epoch FROM scheduled_for - CAST(:day AS timestamptz))::int / 3600 AS hour, count(*)::int
FROM worker_tasks WHERE role = 'product_resync' GROUP BY hour ORDER BY hour
"""

OPEN_STORES = """
INSERT INTO dispensaries (platform, menu_url, name, state, platform_dispensary_id)
SELECT 'dutchie', 'https://dutchie.com/dispensary/' || :state || n, n, :state, :state || n FROM generate_series(1, :n) n
"""


@pytest.fixture
def rows(database_url: str, redis_url: str) -> Iterator[Rows]:
    """The application on a database of the test's own."""
    rows = Rows(database_url)
    with on_servers(app, {"DATABASE_URL": database_url, "REDIS_URL": redis_url}):
        app.register_roles()
        yield rows
    rows.close()


@pytest.fixture
def session(rows: Rows) -> Iterator[Session]:
    with Session(app.database.engine) as session:
        yield session


def open_stores(rows: Rows, n: int, state: str = "AZ") -> None:
    rows(OPEN_STORES, n=n, state=state)


def planned(rows: Rows) -> list[tuple[Any, ...]]:
    """Hour of the day, and how many resyncs."""
    return rows(PLANNED, day=f"{DAY} 00:00Z")


def generate(rows: Rows, batches: int = 6, day: str = DAY) -> object:
    return rows.one(f"SELECT generate_resync_tasks({batches}, '{day}')")


# -- a day's resyncs -------------------------------------------------------------------------------------------------


def test_six_batches_are_four_hours_apart_and_each_store_is_in_one(rows: Rows) -> None:
    open_stores(rows, 14)
    assert generate(rows) == 14
    assert planned(rows) == [(0, 3), (4, 3), (8, 2), (12, 2), (16, 2), (20, 2)]
    assert rows.one("SELECT count(DISTINCT unique_key) FROM worker_tasks") == 14


def test_the_same_day_again_creates_nothing_but_what_new_stores_lack(rows: Rows) -> None:
    open_stores(rows, 5)
    generate(rows)
    assert generate(rows) == 0
    open_stores(rows, 2, "NV")
    assert (generate(rows, 3), generate(rows)) == (2, 0)


def test_a_store_has_one_resync_a_day_whatever_became_of_it(rows: Rows) -> None:
    open_stores(rows, 3)
    generate(rows)
    rows("UPDATE worker_tasks SET status = 'completed', waits_for = NULL, completed_at = now()")
    assert generate(rows) == 0
    assert generate(rows, day="2125-01-11") == 3


def test_a_store_keeps_the_unfinished_resync_it_has(rows: Rows) -> None:
    open_stores(rows, 3)
    waiting = product_resync.delay(rows.one("SELECT min(id) FROM dispensaries"))
    assert generate(rows) == 2
    assert rows("SELECT task_id FROM worker_tasks WHERE waits_for IS NULL") == [(waiting.id,)]


def test_what_is_planned_for_a_later_day_takes_nobodys_place(rows: Rows) -> None:
    """By a day's plan, by the documents' `scheduled_for` and whatever is generated after them, in any order."""
    open_stores(rows, 5)
    store = rows.one("SELECT min(id) FROM dispensaries")
    later = product_resync.apply_async((store,), eta="2125-06-01T06:00:00Z")
    assert later.is_new
    assert generate(rows, day="2125-07-01") == 5
    assert generate(rows) == 5, "the day before them"
    period = f"interval '{RESYNC_EVERY.total_seconds()} seconds'"
    assert rows.one(f"SELECT stagger_resyncs(6, now(), {period})") == 5
    assert rows.one(f"SELECT stagger_resyncs(6, now() + interval '1 minute', {period})") == 0, "they wait already"
    assert product_resync.delay(rows.one("SELECT max(id) FROM dispensaries")).is_new, "one that may start now"


def test_only_stores_with_a_platform_id_that_are_to_be_crawled_take_part(rows: Rows) -> None:
    open_stores(rows, 3)
    rows("UPDATE dispensaries SET platform_dispensary_id = NULL WHERE name = '1'")
    rows("UPDATE dispensaries SET crawl_enabled = false WHERE name = '2'")
    assert generate(rows) == 1


def test_a_day_that_is_over_is_due_at_once(rows: Rows, database: Database) -> None:
    open_stores(rows, 4)
    assert generate(rows, day="2025-01-10") == 4
    with database.transaction() as connection:  # a worker's next look
        look.look(connection)
    assert rows("SELECT status, waits_for, count(*) FROM worker_tasks GROUP BY 1, 2") == [("pending", None, 4)]


def test_locks_and_priorities_are_those_of_the_declaring_code(rows: Rows, session: Session) -> None:
    open_stores(rows, 1)
    generate(rows)
    product_resync.using(unique_key="by hand").delay(store := rows.one("SELECT id FROM dispensaries"))
    shown = "SELECT DISTINCT lock_key, priority, max_retries, kwargs FROM worker_tasks"
    assert rows(shown) == [(f"dispensary_id:{store}", 0, 3, {"dispensary_id": store})]


@pytest.mark.parametrize("batches", [0, -1, "NULL"])
def test_a_number_of_batches_that_cannot_be_is_refused(rows: Rows, batches: Any) -> None:
    with pytest.raises(DBAPIError, match="give a number from 1 on"):
        generate(rows, batches)


def test_python_does_the_same_in_the_callers_transaction(rows: Rows, session: Session) -> None:
    open_stores(rows, 4)
    assert generate_resync_tasks(session) == 4
    session.rollback()
    assert rows("SELECT FROM worker_tasks") == []
    assert generate_resync_tasks(session, 2) == 4
    assert generate_resync_tasks(session, 2) == 0
    session.commit()
    assert rows.one("SELECT count(DISTINCT scheduled_for) FROM worker_tasks") == 2


def test_a_period_of_four_hours_holds_its_batches_and_the_next_one_has_its_own(rows: Rows) -> None:
    open_stores(rows, 12)
    period = f"interval '{RESYNC_EVERY.total_seconds()} seconds'"
    assert rows.one(f"SELECT stagger_resyncs(6, '{DAY} 08:00Z', {period})") == 12
    minutes = f"SELECT DISTINCT extract(epoch FROM scheduled_for - '{DAY} 08:00Z')::int / 60 FROM worker_tasks"
    assert sorted(m for (m,) in rows(minutes)) == [0, 40, 80, 120, 160, 200]
    rows("UPDATE worker_tasks SET status = 'completed', waits_for = NULL, completed_at = now()")
    assert rows.one(f"SELECT stagger_resyncs(6, '{DAY} 08:00Z', {period})") == 0
    assert rows.one(f"SELECT stagger_resyncs(6, '{DAY} 12:00Z', {period})") == 12


# -- the migration from the systems before ---------------------------------------------------------------------------


@pytest.fixture
def old(rows: Rows, session: Session) -> None:
    """Three schedules, one of them off, two runs, and jobs in every state."""
    schedules = [JobSchedule(job_name=f"job {n}", enabled=n > 0) for n in range(3)]
    runs = [JobRunLog(job_name="job 1", status=status) for status in ("success", "running")]
    states = ("pending", "pending", "running", "completed", "failed")
    jobs = [DispensaryCrawlJob(dispensary_id=n, job_type="crawl", status=state) for n, state in enumerate(states)]
    session.add_all([*schedules, *runs, *jobs])
    session.commit()
    open_stores(rows, 4, "AZ")
    open_stores(rows, 2, "NV")


@pytest.mark.usefixtures("old")
def test_the_status_shows_the_old_systems_beside_the_new(session: Session) -> None:
    told = legacy.status(session)
    assert told["old"]["job_schedules"] == {"total": 3, "enabled": 2}
    assert told["old"]["job_run_logs"]["total"] == 2
    assert told["old"]["dispensary_crawl_jobs"] == {"pending": 2, "running": 1, "completed": 1, "failed": 1}
    assert told["new"]["dispensaries"] == {"total": 6, "with_resyncs": 6}
    assert told["new"]["tasks"]["product_resync"] == {"pending": 0, "claimed": 0, "running": 0}
    assert {*told["processes"]} == {"SyncOrchestrator", "HydrationWorker"}
    assert (told["complete"], told["left"]) == (False, [
        "2 job_schedules are enabled", "2 dispensary_crawl_jobs wait", "1 dispensary_crawl_jobs run",
        "1 runs of old jobs are not over",
    ])  # fmt: skip


def test_where_there_is_nothing_old_and_nothing_new_the_migration_is_not_complete(session: Session) -> None:
    told = legacy.status(session)
    assert (told["complete"], told["left"]) == (False, [
        "nothing of the old systems is here: there is nothing to migrate", "no store takes part in resyncs"
    ])  # fmt: skip


@pytest.mark.usefixtures("old")
def test_each_step_says_what_it_did_and_does_it_once(session: Session) -> None:
    assert legacy.disable_old_schedules(session)["schedules"] == ["job 1", "job 2"]
    assert legacy.disable_old_schedules(session)["disabled"] == 0
    assert legacy.cancel_pending_crawl_jobs(session)["cancelled"] == 2
    assert legacy.cancel_pending_crawl_jobs(session)["cancelled"] == 0
    assert legacy.create_resync_tasks(session, "NV")["created"] == 2
    again = legacy.create_resync_tasks(session)
    assert (again["stores"], again["created"], again["existing"]) == (6, 4, 2)
    assert not legacy.status(session)["complete"], "what ran there runs on"
    session.execute(update(DispensaryCrawlJob).values(status="completed"))
    session.execute(update(JobRunLog).values(status="success"))
    assert legacy.status(session)["complete"]


@pytest.mark.usefixtures("old")
def test_the_full_migration_is_all_or_none_and_repeats_nothing(rows: Rows, session: Session) -> None:
    told = legacy.full_migrate(session)
    assert (told["schedules"]["disabled"], told["crawl_jobs"]["cancelled"]) == (2, 2)
    assert (told["resyncs"]["created"], told["first_tasks"]["created"]) == (6, 2)
    assert {*told["processes"]} == {"SyncOrchestrator", "HydrationWorker"}
    assert rows("SELECT FROM worker_tasks") == []
    session.commit()
    roles = "SELECT role, count(*) FROM worker_tasks GROUP BY role ORDER BY role"
    assert rows(roles) == [("analytics_refresh", 1), ("product_resync", 6), ("store_discovery", 1)]
    rows("UPDATE worker_tasks SET status = 'completed', waits_for = NULL, completed_at = now()")
    again = legacy.full_migrate(session)
    assert (again["schedules"]["disabled"], again["crawl_jobs"]["cancelled"]) == (0, 0)
    assert (again["resyncs"]["created"], again["first_tasks"]["created"]) == (0, 0)


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    "step",
    [
        legacy.disable_old_schedules,
        legacy.cancel_pending_crawl_jobs,
        legacy.create_resync_tasks,
        legacy.full_migrate,
    ],
)
def test_a_dry_run_says_the_same_and_changes_nothing(rows: Rows, session: Session, step: Any) -> None:
    before = legacy.status(session)
    dry = step(session, dry_run=True)
    session.commit()
    assert (legacy.status(session), rows("SELECT FROM worker_tasks")) == (before, [])
    assert _plain(dry) == _plain(step(session))


def _plain(told: dict[str, Any]) -> dict[str, Any]:
    """What it says, but for whether it was in earnest."""
    return {k: _plain(v) if isinstance(v, dict) else v for k, v in told.items() if k != "dry_run"}


def test_a_row_may_be_inserted_with_its_store(rows: Rows) -> None:
    """Once: the lock and the unique key are those of a call, and the retries are the role's."""
    rows("INSERT INTO public.worker_tasks (role, dispensary_id) VALUES ('product_resync', 7)")
    with pytest.raises(DBAPIError, match="duplicate key"):
        rows("INSERT INTO public.worker_tasks (role, dispensary_id) VALUES ('product_resync', 7)")
    product_resync.delay(8)
    content = "replace(lock_key, '8', '7'), replace(unique_key, '8', '7'), priority, max_retries, waits_for"
    first, second = rows(f"SELECT {content} FROM public.worker_tasks ORDER BY dispensary_id")
    assert first == second
    assert first[3] == 3
