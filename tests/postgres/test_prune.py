"""Prune: each role's finished tasks go after its `keep`, events and passes after theirs, and nothing else goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, Settings
from celeriac.repair import prune
from celeriac.repair.brief import briefly
from tests.processes import Rows, until

FINISHED = """
INSERT INTO worker_tasks (task_id, role, status, completed_at)
SELECT gen_random_uuid(), :role, :status, now() - :age * interval '1 hour' FROM generate_series(1, :n) n"""

REMAINING = "SELECT role, count(*) FROM worker_tasks GROUP BY role ORDER BY role"


def finished(rows: Rows, role: str, hours: float, status: str = "completed", n: int = 1) -> None:
    rows(FINISHED, role=role, status=status, age=hours, n=n)


def role(rows: Rows, name: str, keep: str) -> None:
    definition = f'{{"keep": {keep}}}'
    rows("INSERT INTO roles (role, definition) VALUES (:name, CAST(:d AS jsonb))", name=name, d=definition)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_finished_task_stays_for_its_roles_period(app: Celeriac, rows: Rows, status: str) -> None:
    role(rows, "hourly", "3600")
    role(rows, "daily", "86400")
    for name in ("hourly", "daily"):
        for hours in (0.9, 1.1, 23, 49):
            finished(rows, name, hours, status)
    assert prune.prune_finished(app) == 4
    assert rows("SELECT role, round(extract(epoch FROM now() - completed_at) / 3600, 1) FROM worker_tasks") == [
        ("hourly", Decimal("0.9")), ("daily", Decimal("0.9")), ("daily", Decimal("1.1")), ("daily", 23)
    ]  # fmt: skip


#: Longer than a day ago, for most of the day.
AS_THE_DAY_BEGAN = """INSERT INTO worker_tasks (task_id, role, status, completed_at)
SELECT gen_random_uuid(), role, 'completed', date_trunc('day', now(), 'UTC') - interval '86399 s'
FROM unnest(ARRAY['daily', 'other']) AS role"""


@pytest.mark.parametrize("other", ["86400", '"forever"'])
def test_what_is_kept_for_days_goes_with_its_day_not_before_it(app: Celeriac, rows: Rows, other: str) -> None:
    """One by one goes only what lies in a day that another role keeps longer."""
    role(rows, "daily", "86400")
    role(rows, "other", other)
    is_kept = other != "86400"
    rows(AS_THE_DAY_BEGAN)
    dropped, removed = prune.prune_by_role(app.database, app.settings)
    assert (dropped, removed.total()) == (0, 0)
    day_of(rows, 2)
    for name in ("daily", "other"):
        finished(rows, name, hours=48)
    dropped, removed = prune.prune_by_role(app.database, app.settings)
    assert (dropped, removed.total()) == ((0, 1) if is_kept else (1, 0))


def test_what_is_kept_for_ever_stays(app: Celeriac, rows: Rows) -> None:
    role(rows, "archive", '"forever"')
    finished(rows, "archive", hours=1_000_000, n=3)
    assert prune.prune_finished(app) == 0
    assert rows(REMAINING) == [("archive", 3)]


def test_a_role_that_nobody_registered_loses_nothing(app: Celeriac, rows: Rows) -> None:
    finished(rows, "unknown", hours=1_000_000)
    assert prune.prune_finished(app) == 0


def test_what_is_celerys_own_and_no_role_stays_as_long_as_events(app: Celeriac, rows: Rows) -> None:
    role(rows, "celery.map", '"forever"')
    for name in ("celery.map", "celery.group"):
        finished(rows, name, hours=29 * 24, status="failed", n=2)
        finished(rows, name, hours=31 * 24, status="failed", n=3)
    assert prune.prune_finished(app) == 3
    assert rows(REMAINING) == [("celery.group", 2), ("celery.map", 5)]


def test_a_day_of_what_is_celerys_own_and_no_role_goes_as_a_whole(app: Celeriac, rows: Rows) -> None:
    old = day_of(rows, 40)
    finished(rows, "celery.chord", hours=40 * 24, status="failed")
    prune.prune_finished(app)
    assert old not in days(rows)


def test_failures_of_a_role_that_keeps_no_success_stay_as_long_as_events(app: Celeriac, rows: Rows) -> None:
    role(rows, "none", "null")
    finished(rows, "none", hours=29 * 24, status="failed", n=2)
    finished(rows, "none", hours=31 * 24, status="cancelled", n=3)
    assert prune.prune_finished(app) == 3
    assert rows(REMAINING) == [("none", 2)]


def test_what_is_not_finished_stays_however_old(app: Celeriac, rows: Rows) -> None:
    role(rows, "work", "1")
    rows("""
        INSERT INTO worker_tasks (task_id, role, status, waits_for, token, created_at, updated_at, scheduled_for,
            claimed_at, started_at, last_heartbeat_at, worker_id, lock_key)
        SELECT gen_random_uuid(), 'work', s, w, t, d, d, d, d, d, d, by, CASE WHEN w = 'lock' THEN 'k' END
        FROM (VALUES
            ('pending', NULL, NULL, NULL), ('pending', 'time', NULL, NULL), ('pending', 'lock', NULL, NULL),
            ('pending', 'account', NULL, NULL), ('claimed', NULL, gen_random_uuid(), NULL),
            ('running', NULL, gen_random_uuid(), 'w')) AS v (s, w, t, by),
            (VALUES (timestamptz '2020-01-01')) AS old (d)""")
    assert prune.prune_finished(app) == 0
    assert rows(REMAINING) == [("work", 6)]


def test_pruning_works_in_batches_until_one_is_short(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "BATCH", 10)
    for name in ("one", "two", "three"):
        role(rows, name, "1")
        finished(rows, name, hours=5, n=15)
    assert prune.prune_finished(app) == 45
    assert rows(REMAINING) == []


# -- days --------------------------------------------------------------------------------------------------------------

DAYS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'history'::regclass"
A_DAY = "SELECT 'history_' || to_char((now() - :days * interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD')"

# Hours since yesterday's last second: a day at the most, at whatever time the test runs.
END_OF_YESTERDAY = """
SELECT extract(epoch FROM now() - date_trunc('day', now(), 'UTC') + interval '1 second') / 3600"""


def day_of(rows: Rows, days: int) -> str:
    """The partition of so many days ago, made if there is none."""
    rows("SELECT add_history_day(CAST((now() - :days * interval '1 day') AT TIME ZONE 'UTC' AS date))", days=days)
    return str(rows.one(A_DAY, days=days))


def days(rows: Rows) -> set[str]:
    return {str(name).removeprefix("celeriac.") for (name,) in rows(DAYS)}


def test_a_day_none_of_whose_tasks_is_kept_goes_as_a_whole(app: Celeriac, rows: Rows) -> None:
    role(rows, "hourly", "3600")
    role(rows, "daily", "86400")
    old, recent = day_of(rows, 3), day_of(rows, 1)
    for name in ("hourly", "daily"):
        finished(rows, name, hours=72, n=5)
    finished(rows, "daily", hours=float(str(rows.one(END_OF_YESTERDAY))), n=2)
    assert rows.one(f"SELECT count(*) FROM {old}") == 10
    prune.prune_finished(app)
    assert old not in days(rows)
    assert {"history_rest", recent} < days(rows)
    assert rows(REMAINING) == [("daily", 2)]


@pytest.mark.parametrize("keep", ["604800", '"forever"', None])
def test_a_day_one_of_whose_roles_keeps_it_stays_and_loses_the_others_tasks(
    app: Celeriac, rows: Rows, keep: str | None
) -> None:
    """A role that nobody registered (None) keeps everything, too."""
    role(rows, "hourly", "3600")
    if keep is not None:
        role(rows, "longer", keep)
    old = day_of(rows, 3)
    for name in ("hourly", "longer"):
        finished(rows, name, hours=72, n=5)
    assert prune.prune_finished(app) == 5
    assert old in days(rows)
    assert rows(REMAINING) == [("longer", 5)]


def test_today_and_the_days_to_come_stay_though_nobody_keeps_anything_of_them(app: Celeriac, rows: Rows) -> None:
    before = days(rows)
    assert len(before) > 2
    assert prune.prune_finished(app) == 0
    assert days(rows) == before


def test_a_day_that_somebody_reads_stays_until_the_next_sweep(app: Celeriac, rows: Rows) -> None:
    role(rows, "hourly", "3600")
    old = day_of(rows, 3)
    finished(rows, "hourly", hours=72)
    with rows.engine.connect().execution_options(isolation_level="READ COMMITTED") as reader:
        reader.execute(text(f"SELECT FROM celeriac.{old}"))
        prune.prune_finished(app)
        assert old in days(rows)
        reader.rollback()
    prune.prune_finished(app)
    assert old not in days(rows)


WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def test_two_sweeps_that_drop_a_day_do_not_wait_for_one_another(app: Celeriac, rows: Rows) -> None:
    """Each has looked what there is of it, which keeps the other from dropping it."""
    old = day_of(rows, 3)
    day = {"day": datetime.strptime(old, "history_%Y%m%d").date()}

    def first() -> None:
        with app.database.transaction() as connection:
            connection.execute(text(f"SELECT FROM celeriac.{old}"))
            looked.wait(20)
            connection.execute(prune.DROP_DAY, day)

    looked = Barrier(2)
    with ThreadPoolExecutor(1) as pool, rows.engine.connect() as second:
        second = second.execution_options(isolation_level="READ COMMITTED")
        second.execute(text(f"SELECT FROM celeriac.{old}"))
        one = pool.submit(first)
        looked.wait(20)
        until(lambda: rows(WAITS), "the first to wait for the second")
        with pytest.raises(DBAPIError, match="somebody else has"):
            second.execute(prune.DROP_DAY, day)
        second.rollback()
        one.result(20)
    assert old not in days(rows)
    assert briefly(app.database, lambda connection: connection.execute(prune.DROP_DAY, day).rowcount) == 0


def test_what_finished_on_a_day_without_a_partition_moves_into_it_once_it_is_made(app: Celeriac, rows: Rows) -> None:
    finished(rows, "work", hours=72, n=3)
    assert rows.one("SELECT count(*) FROM history_rest") == 3
    day = day_of(rows, 3)
    assert (rows.one("SELECT count(*) FROM history_rest"), rows.one(f"SELECT count(*) FROM {day}")) == (0, 3)


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_events_passes_workers_and_beats_go_after_their_periods(app: Celeriac, rows: Rows) -> None:
    rows("""INSERT INTO task_events (task, role, kind, at)
        SELECT d, 'work', 'x', now() - d * interval '1 day' FROM (VALUES (29), (31)) v (d)""")
    rows("""INSERT INTO passes (role, by, free, at, last_at)
        SELECT 'work', 'x', h, now() - interval '9 days', now() - h * interval '1 hour'
        FROM (VALUES (23), (25)) v (h)""")
    rows("""INSERT INTO workers (worker_id, hostname, pid, concurrency, last_heartbeat_at)
        SELECT 'w' || d, 'h', 1, 1, now() - d * interval '1 day' FROM (VALUES (29), (31)) v (d)""")
    rows("""INSERT INTO beats (beat_id, hostname, pid, last_tick_at)
        SELECT 'b' || h, 'h', 1, now() - h * interval '1 hour' FROM (VALUES (23), (25)) v (h)""")
    assert prune.prune_finished(app) == 4
    assert rows("SELECT beat_id FROM beats") == [("b23",)]
    assert rows("SELECT task FROM task_events") == [(29,)]
    assert rows("SELECT free FROM passes") == [(23,)]
    assert rows("SELECT worker_id FROM workers") == [("w29",)]


def test_the_settings_say_how_long_events_and_passes_stay(database_url: str, redis_url: str, rows: Rows) -> None:
    settings = Settings(database_url=database_url, redis_url=redis_url, event_days=1, pass_hours=2)
    app = Celeriac("brief", settings=settings, set_as_current=False)
    rows("""INSERT INTO task_events (task, role, kind, at)
        SELECT h, 'work', 'x', now() - h * interval '1 hour' FROM (VALUES (23), (25)) v (h)""")
    rows("""INSERT INTO passes (role, by, free, last_at)
        SELECT 'work', 'x', h, now() - h * interval '1 hour' FROM (VALUES (1), (3)) v (h)""")
    assert prune.prune_finished(app) == 2
    assert rows("SELECT task FROM task_events") == [(23,)]
    assert rows("SELECT free FROM passes") == [(1,)]
    app.database.dispose()


@pytest.mark.parametrize(
    ("expires", "left"), [(3600, 1), (timedelta(hours=30), 2), (None, 3), (0, 3)], ids=["1 h", "30 h", "never", "0"]
)
def test_saved_groups_stay_for_the_time_of_results(app: Celeriac, rows: Rows, expires: Any, left: int) -> None:
    app.conf.result_expires = expires
    for hours in (0, 24, 48):
        rows(f"INSERT INTO group_results VALUES ('{hours}', '[]', now() - interval '{hours} hours')")
    assert prune.prune_finished(app) == 3 - left
    assert rows.one("SELECT count(*) FROM group_results") == left
