"""What became of each instant of a schedule is recorded with its tick, told, and pruned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from celeriac import Celeriac, insights
from celeriac.insights import Count
from celeriac.repair import sweep
from celeriac.schedules.timetable import Timetable
from celeriac.store.connections import Database
from tests.postgres.ticks.conftest import Put, plan, tick_all
from tests.processes import Rows

TICKS = "SELECT task_id, is_new, left_out, why FROM celeriac.ticks ORDER BY due_at"

#: Instants of a schedule that is ticked each minute, and each fifth time left out.
MADE = """
INSERT INTO celeriac.ticks (schedule, due_at, done_at, task_id, left_out, why)
SELECT s.id, at, at + :late * i * interval '1 second', CASE WHEN i % 5 > 0 THEN s.name || '@' || i END,
    CASE WHEN i % 5 > 0 THEN 0 ELSE 2 END, CASE WHEN i % 5 = 0 THEN 'no beat' END
FROM celeriac.scheduled_jobs s, generate_series(1, :n) i, LATERAL (
    SELECT now() - i * CAST(:apart AS interval) AS at) AS x WHERE s.name = :name"""


def read(database: Database, insight: Callable[..., Any], *given: Any, **named: Any) -> Any:
    with database.reading() as connection:
        return insight(connection, *given, **named)


def schedule(rows: Rows, name: str = "job") -> int:
    return int(str(rows.one("SELECT id FROM celeriac.scheduled_jobs WHERE name = :name", name=name)))


def test_a_tick_tells_its_task_with_how_late_it_was_and_what_became_of_it(
    app: Celeriac, timetable: Timetable, put: Put, rows: Rows, database: Database
) -> None:
    put(overlap="allow")
    due = rows.one("SELECT next_run_at FROM celeriac.scheduled_jobs")
    assert tick_all(timetable) == 1
    (found,) = read(database, insights.ticks_of, schedule(rows))
    made = rows.one("SELECT id FROM worker_tasks")
    assert (found["due_at"], found["id"], found["status"], found["is_new"]) == (due, made, "pending", True)
    assert 1.0 < found["late_seconds"] < 60.0
    assert found["late_seconds"] == (found["done_at"] - due).total_seconds()
    for status, more in (
        ("running", "token = gen_random_uuid(), claimed_at = now(), started_at = now(), last_heartbeat_at = now(), "
                    "worker_id = 'w', worker_pid = 1"),
        ("failed", "completed_at = now()"),
    ):  # fmt: skip
        rows(f"UPDATE worker_tasks SET status = '{status}', {more}")
        assert read(database, insights.ticks_of, schedule(rows))[0]["status"] == status
    rows("DELETE FROM celeriac.history")
    assert read(database, insights.ticks_of, schedule(rows))[0]["status"] == "not kept"


def test_what_was_left_out_is_told_with_its_cause_and_how_many_instants(
    timetable: Timetable, put: Put, app: Celeriac, rows: Rows
) -> None:
    put(ago=3.5, misfire="skip")
    tick_all(timetable)
    put("held")
    tick_all(timetable)
    last = rows.one("SELECT last_task_id FROM celeriac.scheduled_jobs WHERE name = 'held'")
    plan(app, "held", 0)
    tick_all(timetable)
    put("late", ago=2.5, misfire="once", misfire_grace=10 * 3600)
    tick_all(timetable)
    put("bad", target="unheard_of")
    tick_all(timetable)
    told = "SELECT left_out, why FROM celeriac.ticks JOIN celeriac.scheduled_jobs s ON s.id = schedule WHERE name = :n"
    assert rows(f"{told} AND left_out > 0", n="job") == [(1, "no beat ticked within 60 s of the instant")]
    assert rows(f"{told} AND left_out > 0", n="held") == [(1, f"its last task, {last}, was unfinished")]
    (late, made) = rows(f"{told} ORDER BY due_at", n="late")
    assert late == (2, "one task stands for all that were due at once, as no beat had ticked")
    assert made == (0, None)
    ((n, why),) = rows(told, n="bad")
    assert (n, why.partition(":")[0]) == (1, "it cannot run")


def test_a_task_that_was_there_already_stands_for_its_instant(
    app: Celeriac, timetable: Timetable, put: Put, rows: Rows
) -> None:
    put(overlap="allow", options={"unique_key": "one"})
    assert tick_all(timetable) == 1
    plan(app, "job", 0)
    assert tick_all(timetable) == 1
    first = rows.one("SELECT task_id FROM worker_tasks")
    assert rows(TICKS) == [(first, True, 0, None), (first, False, 0, None)]


def test_passes_and_sweeps_leave_no_ticks_and_a_tick_that_dies_neither(
    timetable: Timetable, put: Put, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("pass", kind="pass")
    tick_all(timetable)
    put()
    with monkeypatch.context() as broken:
        broken.setattr("celeriac.schedules.timetable.Ticked", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            timetable.tick()
    assert rows(TICKS) == []
    assert tick_all(timetable) == 1
    assert len(rows(TICKS)) == 1
    rows("DELETE FROM celeriac.scheduled_jobs WHERE name = 'job'")
    assert rows(TICKS) == [], "they go with their schedule"


def test_pages_meet_every_tick_once(put: Put, rows: Rows, database: Database) -> None:
    put()
    rows(MADE, n=25, late=0.1, apart="1 minute", name="job")
    rows(
        "INSERT INTO celeriac.ticks SELECT schedule, due_at, done_at + interval '1 s', task_id FROM celeriac.ticks"
        " WHERE left_out = 0 LIMIT 5"
    )  # an expression that was changed back and forth
    met: list[Any] = []
    place = None
    while page := read(database, insights.ticks_of, schedule(rows), limit=7, before=place):
        met += [(one["due_at"], one["done_at"]) for one in page]
        place = met[-1]
    assert met == rows("SELECT due_at, done_at FROM celeriac.ticks ORDER BY due_at DESC, done_at DESC")


def test_lateness_and_what_was_missed_are_of_the_last_day(put: Put, rows: Rows, database: Database) -> None:
    none = read(database, insights.lateness)
    assert (none.now, none.p95, none.worst, none.ticks) == (0.0, None, None, Count(0))
    for name in ("job", "other"):
        put(name, ago=0.5)
    rows(MADE, n=100, late=0.1, apart="1 minute", name="job")
    rows(MADE, n=10, late=100, apart="1 day", name="other")
    late = read(database, insights.lateness, schedule(rows))
    assert (late.ticks, late.worst) == (Count(80), pytest.approx(9.9))
    assert late.p95 == pytest.approx(9.5, abs=0.3)
    assert late.now == pytest.approx(1801, abs=30)
    assert read(database, insights.lateness).worst == pytest.approx(100.0), "of one day ago, which is done within 24 h"
    ticking = read(database, insights.ticking, [schedule(rows), schedule(rows, "other"), 0])
    assert ticking[schedule(rows)].missed == Count(40)
    assert ticking[schedule(rows, "other")].missed == Count(0)
    assert ticking[0] == insights.Ticking([], None, Count(0))
    strip = ticking[schedule(rows)].strip
    assert len(strip) == 60
    assert strip[0]["due_at"] < strip[-1]["due_at"]


def test_what_is_counted_and_looked_at_is_bounded_and_says_so(
    put: Put, rows: Rows, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    rows(MADE, n=50, late=0.1, apart="1 second", name="job")
    module = import_module("celeriac.insights.history.ticks")
    monkeypatch.setattr(module, "LOOKED_AT", 10)
    monkeypatch.setattr(module, "COUNTED", 3)
    assert read(database, insights.lateness).ticks == Count(10, exact=False)
    assert read(database, insights.lateness, schedule(rows)).ticks == Count(10, exact=False)
    assert read(database, insights.ticking, [schedule(rows)])[schedule(rows)].missed == Count(6, exact=False)


def test_the_sweep_keeps_the_newest_sixty_and_those_of_a_day(app: Celeriac, put: Put, rows: Rows) -> None:
    for name in ("often", "daily", "seldom"):
        put(name)
    rows(MADE, n=200, late=0, apart="10 minutes", name="often")
    rows(MADE, n=100, late=0, apart="1 day", name="daily")
    rows(MADE, n=10, late=0, apart="30 days", name="seldom")
    sweep(app, "prune")
    kept = """SELECT name, count(*), now() - min(due_at) FROM celeriac.ticks JOIN celeriac.scheduled_jobs s
        ON s.id = schedule GROUP BY name ORDER BY name"""
    (daily, often, seldom) = rows(kept)
    assert daily[:2] == ("daily", 60)
    assert daily[2] < timedelta(days=61)
    assert often[:2] == ("often", 143)
    assert seldom[:2] == ("seldom", 10)
    assert sweep(app, "prune") == 0
