"""Schedules changed while beat runs: each change takes effect soon, and no run is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest

from tests.api.server import Api, serving
from tests.faults.beats import EVERY, TOCK, Fleet, Sized, Ticks
from tests.processes import ROOT, Rows, crowd, until

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
INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, misfire, overlap)
VALUES (:name, 'tock', :expression, 'all', 'allow')
"""
CHANGE = "UPDATE celeriac.scheduled_jobs SET cron_expression = :expression WHERE name = :name"
SWITCH = "UPDATE celeriac.scheduled_jobs SET enabled = :enabled WHERE name = :name"
JOBS = "/api/admin/scheduled-jobs"


class Hands(Protocol):
    """Who changes schedules."""

    def create(self, name: str, expression: str) -> None: ...
    def change(self, name: str, expression: str) -> None: ...
    def switch(self, name: str, enabled: bool) -> None: ...


@dataclass
class Sql:
    """With psql."""

    rows: Rows

    def create(self, name: str, expression: str) -> None:
        self.rows(CREATE, name=name, expression=expression)

    def change(self, name: str, expression: str) -> None:
        self.rows(CHANGE, name=name, expression=expression)

    def switch(self, name: str, enabled: bool) -> None:
        self.rows(SWITCH, name=name, enabled=enabled)


@dataclass
class Http:
    """With the API."""

    api: Api

    def create(self, name: str, expression: str) -> None:
        given = {"name": name, "role": "tock", "cron_expression": expression, "misfire": "all", "overlap": "allow"}
        self.api.post(JOBS, given)

    def change(self, name: str, expression: str) -> None:
        self.api.put(self._path(name), {"cron_expression": expression})

    def switch(self, name: str, enabled: bool) -> None:
        self.api.post(f"{self._path(name)}/toggle", {"enabled": enabled})

    def _path(self, name: str) -> str:
        return f"{JOBS}/{self.api.rows.one('SELECT id FROM celeriac.scheduled_jobs WHERE name = :name', name=name)}"


class Changes:
    """What is changed, and after how many seconds (on the database's clock) a schedule's tasks show it."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.begin()

    def begin(self) -> None:
        ((self.since,),) = self.rows("SELECT clock_timestamp()")

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
    wanted = crowd()
    print(f"{what}: took effect after {seconds:.3f} s; {wanted:.1f} processes wanted each processor")
    assert seconds < sized(1, 1000) * SOON * wanted


#: By day `tests/api` has what the API writes, and here a row is changed by SQL.
BY_NIGHT = pytest.mark.nightly("the same changes by way of an API server")


@pytest.fixture(params=["SQL", pytest.param("HTTP", marks=BY_NIGHT)])
def hands(request: pytest.FixtureRequest, ticking: Fleet, recorded: Rows, tmp_path: Path) -> Iterator[Hands]:
    if request.param == "SQL":
        yield Sql(recorded)
        return
    path = f"{ticking.folder}:{ROOT}"
    with serving(
        ticking.database_url, ticking.redis_url, tmp_path / "api.log", app="tests.faults.clockwork", PYTHONPATH=path
    ) as api:
        yield Http(api)


@pytest.fixture
def ticking(fleet: Fleet, changes: Changes) -> Fleet:
    """Two beats with one schedule, under way."""
    fleet.times(TOCK)
    fleet.start(2)
    changes.begin()
    changes.seen("tock")
    return fleet


def test_a_changed_expression_rules_soon_and_every_instant_before_it_ran(
    hands: Hands, changes: Changes, recorded: Rows, sized: Sized
) -> None:
    changes.begin()
    hands.change("tock", "@every 200ms")
    until(lambda: Ticks(recorded, "tock").steps.count(SLOWER) >= 5, "the slower series")
    found = Ticks(recorded, "tock")
    found.assert_changes_once(EVERY, SLOWER)
    first = found.instants[found.steps.index(SLOWER)]
    told(f"an expression changed by {type(hands).__name__}", (first - changes.since).total_seconds(), sized)


def test_a_schedule_switched_off_stops_at_once_and_back_on_it_missed_nothing(
    hands: Hands, changes: Changes, recorded: Rows, sized: Sized
) -> None:
    hands.switch("tock", False)
    before = Ticks(recorded, "tock")
    changes.begin()
    hands.create("other", "@every 50ms")
    told(f"a schedule created by {type(hands).__name__}", changes.seen("other", 20), sized)
    assert len(Ticks(recorded, "tock").instants) == len(before.instants)
    changes.begin()
    hands.switch("tock", True)
    told(f"a schedule switched on by {type(hands).__name__}", changes.seen("tock"), sized)
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
    assert recorded("SELECT enabled FROM celeriac.scheduled_jobs WHERE name = 'gone'") == [(False,)]
    assert Ticks(recorded, "gone").instants[-1] < Ticks(recorded, "fresh").instants[0]
