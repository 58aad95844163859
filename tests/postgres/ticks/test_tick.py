"""Ticks: each instant of a schedule is enqueued once, by one beat, on the database's clock; the missed by policy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg2.errors import LockNotAvailable
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac, CeleriacError
from celeriac.schedules import written
from celeriac.schedules.timetable import RunNow, Timetable
from tests.postgres.ticks.conftest import TASKS, Put, plan, tick_all
from tests.processes import Rows

FUTURE = "SELECT next_run_at > now() FROM celeriac.scheduled_jobs WHERE name = :name"


def test_a_due_instant_is_enqueued_once_under_its_own_name(timetable: Timetable, put: Put, rows: Rows) -> None:
    put("hourly", kwargs={"n": 7}, priority=20)
    instant = rows.one("SELECT next_run_at FROM celeriac.scheduled_jobs")
    assert tick_all(timetable) == 1
    assert tick_all(timetable) == 0
    ((task_id, kwargs, priority, by),) = rows("SELECT task_id, kwargs, priority, enqueued_by FROM worker_tasks")
    assert task_id == f"hourly@{instant.isoformat().replace('+00:00', 'Z')}"
    assert (kwargs, priority, by) == ({"n": 7}, 20, "schedule hourly")
    following = "SELECT next_run_at - last_run_at = interval '1 hour' AND last_run_at = :i FROM celeriac.scheduled_jobs"
    assert rows.one(following, i=instant)


@pytest.mark.parametrize(("misfire", "runs"), [("skip", 0), ("once", 1), ("all", 4)])
def test_a_beat_that_was_off_for_three_periods(
    timetable: Timetable, put: Put, rows: Rows, misfire: str, runs: int
) -> None:
    put(ago=3.5, misfire=misfire, overlap="allow")
    assert tick_all(timetable) == runs
    assert len(rows(TASKS)) == runs
    assert rows.one(
        "SELECT next_run_at > now() AND next_run_at < now() + interval '1 hour' FROM celeriac.scheduled_jobs"
    )


def test_what_is_late_within_the_grace_runs_each_instant(timetable: Timetable, put: Put, rows: Rows) -> None:
    put(ago=3.5, misfire="skip", misfire_grace=2.6 * 3600, overlap="allow")
    assert tick_all(timetable) == 3
    assert left_out(rows) == (1, 1, "no beat ticked within 9360 s of the instant")


def left_out(rows: Rows) -> tuple[Any, ...]:
    """How many in all; how many last, and why."""
    (found,) = rows("SELECT skips, last_report ->> 'left_out', last_report ->> 'why' FROM celeriac.scheduled_jobs")
    return (found[0], int(found[1]), found[2])


def test_what_comes_late_all_at_once_is_one_task_unless_it_may_overlap(
    timetable: Timetable, put: Put, rows: Rows
) -> None:
    put(ago=2.5, misfire="once", misfire_grace=10 * 3600)
    assert tick_all(timetable) == 1
    assert left_out(rows) == (2, 2, "one task stands for all that were due at once, as no beat had ticked")


def test_a_task_that_is_unfinished_keeps_the_next_out(
    timetable: Timetable, put: Put, app: Celeriac, rows: Rows
) -> None:
    put()
    assert tick_all(timetable) == 1
    plan(app, "job", 0)
    assert tick_all(timetable) == 0
    last = rows.one("SELECT task_id FROM worker_tasks")
    assert left_out(rows) == (1, 1, f"its last task, {last}, was unfinished")
    rows("UPDATE worker_tasks SET status = 'cancelled', completed_at = now()")
    plan(app, "job", 0)
    assert tick_all(timetable) == 1


def test_of_many_beats_each_due_schedule_is_taken_by_one(app: Celeriac, put: Put, rows: Rows) -> None:
    for n in range(40):
        put(f"job {n}", overlap="allow")
    with ThreadPoolExecutor(4) as beats:
        assert sum(beats.map(lambda _: tick_all(Timetable(app)), range(4))) == 40
    assert len(rows(TASKS)) == 40


def test_a_changed_expression_rules_from_now_on_and_what_was_due_before_still_runs(
    timetable: Timetable, put: Put, rows: Rows
) -> None:
    put(ago=0)
    due = rows.one("SELECT next_run_at FROM celeriac.scheduled_jobs")
    rows("UPDATE celeriac.scheduled_jobs SET cron_expression = '@every 10m'")
    assert tick_all(timetable) == 1
    assert rows.one("SELECT last_run_at FROM celeriac.scheduled_jobs") == due
    assert rows.one("SELECT next_run_at BETWEEN now() + '9m' AND now() + '10m' FROM celeriac.scheduled_jobs")
    rows("UPDATE celeriac.scheduled_jobs SET cron_expression = '0 4 * * *', timezone = 'Europe/Berlin'")
    assert tick_all(timetable) == 0
    assert (
        rows.one("SELECT extract(hour FROM next_run_at AT TIME ZONE 'Europe/Berlin') FROM celeriac.scheduled_jobs") == 4
    )


def test_a_schedule_that_was_switched_off_has_missed_nothing(timetable: Timetable, put: Put, rows: Rows) -> None:
    put(ago=5, misfire="all", overlap="allow")
    rows("UPDATE celeriac.scheduled_jobs SET enabled = false")
    assert timetable.tick() is None
    rows("UPDATE celeriac.scheduled_jobs SET enabled = true")
    assert tick_all(timetable) == 0
    assert rows.one(FUTURE, name="job")


def test_a_clock_stepped_back_repeats_nothing(timetable: Timetable, put: Put, rows: Rows) -> None:
    """Going back a clock is as if the instants lay ahead: those that were run are not run again."""
    put(overlap="allow")
    assert tick_all(timetable) == 1
    rows(
        "UPDATE celeriac.scheduled_jobs"
        " SET next_run_at = next_run_at + interval '2 hours', last_run_at = last_run_at + '2h'"
    )
    assert tick_all(timetable) == 0
    rows(
        "UPDATE celeriac.scheduled_jobs SET next_run_at = last_run_at - interval '2 hours'"
    )  # even if someone replans it
    assert tick_all(timetable) == 1
    assert len({task for (task,) in rows(TASKS)}) == len(rows(TASKS)) == 1


def test_a_clock_stepped_forward_over_many_instants_takes_them_in_bounded_steps(
    timetable: Timetable, put: Put, rows: Rows
) -> None:
    put(cron_expression="@every 1s", ago=0.7, misfire="all", overlap="allow")
    first = timetable.tick()
    assert first is not None
    assert len(first.plan.run) == 1000
    assert tick_all(timetable) >= 1500
    assert len(rows(TASKS)) == rows.one(
        "SELECT round(extract(epoch FROM max(last_run_at) - min(:f)) + 1) FROM celeriac.scheduled_jobs",
        f=first.plan.run[0],
    )


def test_run_now_enqueues_beside_the_instants(timetable: Timetable, put: Put, rows: Rows) -> None:
    put(ago=-0.5, enabled=False)
    before = rows.one("SELECT next_run_at FROM celeriac.scheduled_jobs")
    task = timetable.run_now("job").result
    assert [t for (t,) in rows(TASKS)] == [task]
    assert timetable.run_now("job") == RunNow(task, ran=False), "the unfinished one is told"
    assert rows.one("SELECT next_run_at FROM celeriac.scheduled_jobs") == before
    with pytest.raises(CeleriacError, match="no schedule 'jab'"):
        timetable.run_now("jab")


def test_run_now_waits_briefly_for_somebodys_unique_key(app: Celeriac, timetable: Timetable, put: Put) -> None:
    @app.task(role="keyed", unique_by="n", prompt=False, shared=False)
    def keyed(n: int = 0) -> None: ...

    put(target="keyed", ago=-0.5)
    with app.database.engine.connect() as other:
        keyed.using(connection=other).delay()
        ran = ThreadPoolExecutor(1).submit(timetable.run_now, "job")
        with pytest.raises(DBAPIError) as refused:
            ran.result(timeout=5)
        assert isinstance(refused.value.orig, LockNotAvailable)
    assert timetable.run_now("job").ran


def test_a_schedule_is_found_by_its_name_or_by_its_id_and_never_by_the_others(
    app: Celeriac, put: Put, rows: Rows
) -> None:
    put("first")
    first = rows.one("SELECT id FROM scheduled_jobs")
    for lock in (False, True):
        with app.database.transaction() as connection:
            assert written.find(connection, str(first), lock=lock) is None, "a name is no id"
    put(str(first))
    for lock in (False, True):
        with app.database.transaction() as connection:
            by_id, by_name = (written.find(connection, given, lock=lock) for given in (first, str(first)))
            assert by_id
            assert by_name
            assert (by_id["name"], by_name["name"]) == ("first", str(first))
