"""Alerts fire while a value is above its threshold, say since when, and are logged when they begin and end."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from celeriac import Celeriac
from celeriac.insights import firing
from celeriac.repair import alerts, sweep
from celeriac.repair.alerts import Measured, evaluate
from celeriac.settings import Settings
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, registered
from tests.postgres.stages import enqueued, running
from tests.processes import Rows

STATE = "SELECT name, subject, firing_since = last_seen_at FROM celeriac.alerts ORDER BY name, subject"


def fires(measure: str, value: float) -> bool:
    return bool(evaluate([Measured(measure, "s", value)], Settings()))


@pytest.mark.parametrize(
    ("measure", "threshold"), [("queue_depth", 1000), ("failed_rate", 0.1), ("longest_running", 3600), ("late", 300)]
)
def test_the_thresholds_are_the_seeds(measure: str, threshold: float) -> None:
    assert not fires(measure, threshold)
    assert fires(measure, threshold * 1.001)


def test_a_threshold_is_a_setting() -> None:
    (alert,) = evaluate(
        [Measured("queue_depth", "work", 7)], Settings.from_environ({"CELERIAC_ALERT_QUEUE_DEPTH": "5"})
    )
    assert str(alert) == "queue_depth: work: 7 tasks wait, more than 5"


@pytest.fixture
def touchy(app: Celeriac) -> Celeriac:
    app.settings = replace(app.settings, alert_queue_depth=2, alert_failed_rate=0.5)
    return app


def test_an_alert_fires_until_its_cause_is_gone(
    touchy: Celeriac, database: Database, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "celeriac.repair.alerts")
    registered(rows, "work", "calm")
    enqueued(database, *(new_task() for _ in range(3)))
    assert sweep(touchy, "alerts") == 1
    assert rows(STATE) == [("queue_depth", "work", True)]
    assert sweep(touchy, "alerts") == 0
    assert rows(STATE) == [("queue_depth", "work", False)]
    rows("DELETE FROM worker_tasks WHERE id = 1")
    assert sweep(touchy, "alerts") == 1
    assert rows(STATE) == []
    began, ended = [r.message for r in caplog.records if r.name == "celeriac.repair.alerts"]
    assert began == "Alert queue_depth: work: 3 tasks wait, more than 2"
    assert ended.startswith("Alert queue_depth: work: over after ")


def test_a_dead_letter_is_told_until_it_is_replayed_or_discarded(app: Celeriac, rows: Rows) -> None:
    rows("""INSERT INTO dead_letters (digest, reason, size, message)
        SELECT sha256(CAST(i AS text)::bytea), 'x', 1, 'x' FROM generate_series(1, 2) i""")
    assert sweep(app, "alerts") == 1
    assert rows("SELECT name, subject, value, threshold FROM celeriac.alerts") == [
        ("dead_letters", "plain Celery", 2, 0)
    ]
    rows("DELETE FROM dead_letters")
    assert sweep(app, "alerts") == 1
    assert rows(STATE) == []


def test_each_of_the_four_fires_for_its_own_subject(touchy: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "deep", "failing", "slow", "calm")
    enqueued(database, *(new_task("deep") for _ in range(3)))
    finished(rows, "failing", "failed")
    finished(rows, "calm")
    running(database, new_task("slow"))
    rows("UPDATE worker_tasks SET started_at = now() - interval '61 minutes' WHERE role = 'slow'")
    app_schedule(rows, "missed", minutes_ago=6)
    app_schedule(rows, "in time", minutes_ago=4)
    app_schedule(rows, "switched off", minutes_ago=6, enabled=False)
    alerts.review(touchy)
    assert [row[:2] for row in rows(STATE)] == [
        ("failed_rate", "failing"), ("long_running", "slow"), ("missed_schedule", "missed"), ("queue_depth", "deep")
    ]  # fmt: skip
    with database.statement() as connection:
        told = firing(connection)
    assert {(alert["name"], alert["threshold"]) for alert in told} == {
        ("failed_rate", 0.5), ("long_running", 3600), ("missed_schedule", 300), ("queue_depth", 2)
    }  # fmt: skip


def app_schedule(rows: Rows, name: str, minutes_ago: int, enabled: bool = True) -> None:
    rows(
        """INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, enabled, next_run_at)
        VALUES (:name, 'work', '@hourly', :enabled, now() - :ago * interval '1 minute')""",
        name=name, enabled=enabled, ago=minutes_ago,
    )  # fmt: skip


def test_two_reviews_at_once_log_once(touchy: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work")
    enqueued(database, *(new_task() for _ in range(3)))
    with database.transaction() as other:
        other.execute(alerts.LOCK)
        assert alerts.review(touchy) == 0
    assert alerts.review(touchy) == 1
