"""Without a beat workers do the vital repairs, one of them at a time; with one they leave them to it."""

from __future__ import annotations

import pytest

from celeriac import Celeriac
from celeriac.repair import SWEEPS, vital
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import running
from tests.processes import Rows

SCHEDULE = """
INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled, next_run_at)
VALUES ('sweep rescue', 'sweep', 'rescue', '@every 30s', :enabled, now() - :late * interval '1 second')
"""


def due(database: Database, every: float = 30.0) -> set[str]:
    with database.statement() as connection:
        return set(vital.due(connection, every))


def test_what_a_dead_worker_ran_is_rescued_without_a_beat(app: Celeriac, database: Database, rows: Rows) -> None:
    running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 day'")
    assert vital.repair(app) == 1
    assert rows("SELECT status, losses FROM worker_tasks") == [("pending", 1)]


def test_of_many_workers_one_runs_what_is_due_and_not_again_before_an_interval_is_over(
    database: Database, rows: Rows
) -> None:
    assert due(database) == set(vital.VITAL)
    assert due(database) == set()
    rows("UPDATE repairs SET at = at - interval '31 s' WHERE name = 'rescue'")
    assert due(database) == {"rescue"}


@pytest.mark.parametrize(("late", "is_left"), [(-86_400, True), (-1, True), (89, True), (91, False)])
def test_what_a_beat_keeps_in_time_is_left_to_it(database: Database, rows: Rows, late: int, is_left: bool) -> None:
    """By its schedule's own time, which may be a day away."""
    rows(SCHEDULE, enabled=True, late=late)
    assert ("rescue" not in due(database)) == is_left


def test_what_an_operator_switched_off_stays_off(database: Database, rows: Rows) -> None:
    rows(SCHEDULE, enabled=False, late=1000)
    assert "rescue" not in due(database)


def test_a_sweep_that_fails_keeps_no_other_from_running(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Celeriac) -> int:
        raise RuntimeError("it is broken")

    monkeypatch.setitem(SWEEPS, "hand_over", broken)
    running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 day'")
    assert vital.repair(app) == 1
    assert "The sweep hand_over failed; it is tried again in 30 s" in caplog.text


def test_every_vital_repair_is_a_sweep() -> None:
    assert set(vital.VITAL) <= set(SWEEPS)
