"""Prune: each role's finished tasks go after its `keep`, events and passes after theirs, and nothing else goes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from celeriac import Celeriac, Settings
from celeriac.repair import prune
from tests.processes import Rows

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
        for hours in (0.9, 1.1, 23, 25):
            finished(rows, name, hours, status)
    assert prune.prune_finished(app) == 4
    assert rows("SELECT role, round(extract(epoch FROM now() - completed_at) / 3600, 1) FROM worker_tasks") == [
        ("hourly", Decimal("0.9")), ("daily", Decimal("0.9")), ("daily", Decimal("1.1")), ("daily", 23)
    ]  # fmt: skip


def test_what_is_kept_for_ever_stays(app: Celeriac, rows: Rows) -> None:
    role(rows, "archive", '"forever"')
    finished(rows, "archive", hours=1_000_000, n=3)
    assert prune.prune_finished(app) == 0
    assert rows(REMAINING) == [("archive", 3)]


def test_a_role_that_nobody_registered_loses_nothing(app: Celeriac, rows: Rows) -> None:
    finished(rows, "unknown", hours=1_000_000)
    assert prune.prune_finished(app) == 0


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
            claimed_at, started_at, last_heartbeat_at, worker_id)
        SELECT gen_random_uuid(), 'work', s, w, t, d, d, d, d, d, d, 'w' FROM (VALUES
            ('pending', NULL, NULL), ('pending', 'time', NULL), ('claimed', NULL, gen_random_uuid()),
            ('running', NULL, gen_random_uuid())) AS v (s, w, t), (VALUES (timestamptz '2020-01-01')) AS old (d)""")
    assert prune.prune_finished(app) == 0
    assert rows(REMAINING) == [("work", 4)]


def test_pruning_works_in_batches_until_one_is_short(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "BATCH", 10)
    for name in ("one", "two", "three"):
        role(rows, name, "1")
        finished(rows, name, hours=5, n=15)
    assert prune.prune_finished(app) == 45
    assert rows(REMAINING) == []


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
