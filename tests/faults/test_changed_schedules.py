"""Schedules changed while beat runs: each change takes effect soon, and no run is lost or doubled."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from tests.faults.beats import EVERY, TOCK, Fleet, Sized, Ticks
from tests.processes import Rows, until

SLOWER = timedelta(milliseconds=200)

#: Every change takes effect within this (seconds) on a machine with a free processor; asserted in full form. A start of
#: beat is a second of computing: among others it takes as many times as long as there are others for each processor.
SOON = 2.0

ENQUEUED = "SELECT count(*) FROM enqueued WHERE task_id LIKE :name || '@%' AND at > CAST(:since AS timestamptz)"
EFFECT = """
SELECT extract(epoch FROM min(at) - CAST(:since AS timestamptz))::float8
FROM enqueued WHERE task_id LIKE :name || '@%' AND at > CAST(:since AS timestamptz)
"""
CREATE = """
INSERT INTO scheduled_jobs (name, target, cron_expression, misfire, overlap)
VALUES (:name, 'tock', '@every 50ms', 'all', 'allow')
"""


class Changes:
    """What is changed, and after how many seconds (on the database's clock) a schedule's tasks show it."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.begin()

    def begin(self) -> None:
        ((self.since,),) = self.rows("SELECT clock_timestamp()")

    def sql(self, statement: str, **given: object) -> None:
        self.begin()
        self.rows(statement, **given)

    def enqueued(self, name: str) -> int:
        return int(str(self.rows.one(ENQUEUED, name=name, since=self.since)))

    def seen(self, name: str, ticks: int = 5) -> float:
        """Waits for that many tasks of the schedule; seconds from the change to the first of them."""
        until(lambda: self.enqueued(name) >= ticks, f"{ticks} tasks of {name}")
        return float(str(self.rows.one(EFFECT, name=name, since=self.since)))


@pytest.fixture
def changes(recorded: Rows) -> Changes:
    return Changes(recorded)


def told(what: str, seconds: float, sized: Sized) -> None:
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    print(f"{what}: took effect after {seconds:.3f} s; {crowd:.1f} processes wanted each processor")
    assert seconds < sized(1, 1000) * SOON * crowd


@pytest.fixture
def ticking(fleet: Fleet, changes: Changes) -> Fleet:
    """Two beats with one schedule, under way."""
    fleet.times(TOCK)
    fleet.start(2)
    changes.begin()
    changes.seen("tock")
    return fleet


def test_an_expression_changed_in_sql_rules_soon_and_every_instant_before_it_ran(
    ticking: Fleet, changes: Changes, recorded: Rows, sized: Sized
) -> None:
    changes.sql("UPDATE scheduled_jobs SET cron_expression = '@every 200ms' WHERE name = 'tock'")
    until(lambda: Ticks(recorded, "tock").steps.count(SLOWER) >= 5, "the slower series")
    found = Ticks(recorded, "tock")
    found.assert_changes_once(EVERY, SLOWER)
    first = found.instants[found.steps.index(SLOWER)]
    told("an expression changed in SQL", (first - changes.since).total_seconds(), sized)


def test_a_schedule_switched_off_in_sql_stops_at_once_and_back_on_it_missed_nothing(
    ticking: Fleet, changes: Changes, recorded: Rows, sized: Sized
) -> None:
    recorded("UPDATE scheduled_jobs SET enabled = false WHERE name = 'tock'")
    before = Ticks(recorded, "tock")
    changes.sql(CREATE, name="other")
    told("a schedule created in SQL", changes.seen("other", 20), sized)
    assert len(Ticks(recorded, "tock").instants) == len(before.instants)
    changes.sql("UPDATE scheduled_jobs SET enabled = true WHERE name = 'tock'")
    told("a schedule switched on in SQL", changes.seen("tock"), sized)
    after = Ticks(recorded, "tock")
    pause = len(before.instants) - 1
    assert after.instants[pause + 1] > changes.since
    assert set(after.steps[:pause] + after.steps[pause + 1 :]) == {EVERY}
    Ticks(recorded, "other").assert_each_once(EVERY)


def test_the_edited_config_rules_soon_after_the_restart_and_no_run_is_lost_or_doubled(
    fleet: Fleet, changes: Changes, recorded: Rows, sized: Sized
) -> None:
    kept, gone, fresh = (TOCK.replace('"tock", "@', f'"{name}", "@') for name in ("kept", "gone", "fresh"))
    fleet.times(TOCK, kept, gone)
    fleet.start()
    changes.begin()
    changes.seen("gone")
    fleet.times(TOCK.replace("50ms", "200ms"), kept, fresh)
    changes.begin()
    fleet.restart()
    told("an edited config, restart included", changes.seen("fresh"), sized)
    until(lambda: Ticks(recorded, "tock").steps.count(SLOWER) >= 5, "the slower series")
    Ticks(recorded, "tock").assert_changes_once(EVERY, SLOWER)
    for name in ("kept", "gone", "fresh"):
        Ticks(recorded, name).assert_each_once(EVERY)
    assert recorded("SELECT enabled FROM scheduled_jobs WHERE name = 'gone'") == [(False,)]
    assert Ticks(recorded, "gone").instants[-1] < Ticks(recorded, "fresh").instants[0]
