"""Without a beat workers do the vital repairs, one of them at a time; with one they leave them to it."""

from __future__ import annotations

import pytest

from celeriac import Celeriac
from celeriac.repair import SWEEPS, history, vital
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
    history.add_days(app)
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
    history.add_days(app)
    running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 day'")
    assert vital.repair(app) == 1
    assert "The sweep hand_over failed; it is tried again in 30 s" in caplog.text


def test_without_a_master_the_first_process_to_start_reviews(app: Celeriac, database: Database, rows: Rows) -> None:
    """As the Queue Master's document has it; those that start beside it leave it to that one."""
    app.register_roles()
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{\"keep\": 60}')")
    rows("""INSERT INTO worker_tasks (task_id, role, status, completed_at)
        VALUES ('1', 'work', 'failed', now() - interval '1 h')""")
    history.add_days(app)
    running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = now() - interval '1 day'")
    assert (vital.at_start(app), vital.at_start(app)) == (2, 0)
    assert rows("SELECT state FROM queue_states WHERE role = 'work'") == [("reviewed",)]


def test_a_master_that_is_switched_off_is_none(app: Celeriac, rows: Rows) -> None:
    """`masterInterval: false`."""
    app.register_roles()
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    rows(SCHEDULE.replace("rescue", "review"), enabled=False, late=0)
    vital.at_start(app)
    assert rows("SELECT role FROM queue_states WHERE role = 'work'") == [("work",)]


def test_with_a_master_a_process_that_starts_leaves_the_review_to_it(app: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    rows(SCHEDULE.replace("rescue", "review"), enabled=True, late=-1)
    vital.at_start(app)
    assert rows("SELECT count(*) FROM queue_states") == [(0,)]


def test_every_vital_repair_is_a_sweep() -> None:
    assert {*vital.VITAL, *vital.AT_START} <= set(SWEEPS)
