"""Alerts fire once their value was above its threshold for as long as their rule wants, and one looks for all."""

from __future__ import annotations

import logging
import time

import pytest
from sqlalchemy import Connection, make_url, text

from celeriac import Celeriac, insights
from celeriac.alerts import measure, record, review
from celeriac.alerts.rules import Measured
from celeriac.insights.fleet import watched
from celeriac.repair import sweep
from celeriac.store.connections import Database
from tests.postgres.alerts import STATE, WAITED, looked
from tests.postgres.conftest import new_task
from tests.postgres.finished import live_worker, registered
from tests.postgres.stages import enqueued
from tests.processes import Rows


def test_an_alert_fires_until_its_cause_is_gone(
    touchy: Celeriac, database: Database, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "celeriac.alerts")
    registered(rows, "work", "calm")
    live_worker(rows)
    enqueued(database, *(new_task() for _ in range(3)))
    assert looked(touchy, rows) == 1
    assert rows(STATE) == [("queue_depth", "work", True)]
    assert sweep(touchy, "alerts") == 0
    assert rows(STATE) == [("queue_depth", "work", False)]
    rows("DELETE FROM worker_tasks WHERE id = 1")
    assert sweep(touchy, "alerts") == 1
    assert rows(STATE) == []
    began, ended = [r.message for r in caplog.records if r.name == "celeriac.alerts.review"]
    assert began == "Alert queue_depth: work: 3 tasks wait, more than 2"
    assert ended.startswith("Alert queue_depth: work: over after ")


def test_a_rule_that_wants_it_to_last_waits_and_starts_anew(touchy: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work")
    live_worker(rows)
    enqueued(database, *(new_task() for _ in range(3)))
    assert sweep(touchy, "alerts") == 0
    with database.statement() as connection:
        assert [(one["name"], one["subject"]) for one in insights.pending_alerts(connection)] == [
            ("queue_depth", "work")
        ]
    rows("UPDATE alerts_pending SET since = since - interval '599 s'")
    assert sweep(touchy, "alerts") == 0
    rows("DELETE FROM worker_tasks WHERE id = 1")
    assert sweep(touchy, "alerts") == 0
    assert rows("SELECT FROM alerts_pending") == []


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


def test_two_looks_at_once_log_once(touchy: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work")
    live_worker(rows)
    enqueued(database, *(new_task() for _ in range(3)))
    sweep(touchy, "alerts")
    rows(WAITED)
    with database.transaction() as other:
        other.execute(record.LOCK)
        assert sweep(touchy, "alerts") == 0
    assert sweep(touchy, "alerts") == 1


# -- who looks ---------------------------------------------------------------------------------------------------------

SWEEP = """INSERT INTO scheduled_jobs (name, kind, target, cron_expression, enabled, next_run_at, last_run_at)
    VALUES ('sweep alerts', 'sweep', 'alerts', '@every 30s', :enabled, now() + interval '10 s',
        now() - :ran * interval '1 s')"""


def test_of_all_who_ask_one_looks_where_nobody_has(app: Celeriac, rows: Rows) -> None:
    asked = "SELECT at FROM repairs WHERE name = 'alerts'"
    review.review_if_late(app)
    first = rows.one(asked)
    review.review_if_late(app)
    assert rows.one(asked) == first
    rows("UPDATE repairs SET at = at - interval '61 s'")
    review.review_if_late(app)
    assert rows.one(asked) >= first  # type: ignore[operator]


@pytest.mark.parametrize(
    ("enabled", "ran", "looked_ago", "is_left"),
    [(True, 600, 599, True), (True, 100, 599, False), (False, 600, 5000, True), (True, 20, 30, True)],
    ids=["beat looked at its instant", "beat's look never came", "switched off", "beat's look is under way"],
)  # fmt: skip
def test_a_beat_that_looks_is_left_to_it(
    app: Celeriac, rows: Rows, enabled: bool, ran: int, looked_ago: int, is_left: bool
) -> None:
    rows(SWEEP, enabled=enabled, ran=ran)
    rows("INSERT INTO repairs (name, at) VALUES ('alerts', now() - :ago * interval '1 s')", ago=looked_ago)
    before = rows.one("SELECT at FROM repairs")
    review.review_if_late(app)
    assert (rows.one("SELECT at FROM repairs") == before) is is_left


def test_a_look_that_came_about_is_known_with_what_it_could_not_read(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[insights.Look]:
        with app.database.reading() as connection:
            return insights.looks(connection, review.looks_of(app.main, app.alerts))

    assert told() == [insights.Look("alerts", None, [])]
    with app.database.transaction() as other:
        other.execute(record.LOCK)
        sweep(app, "alerts")
    assert told() == [insights.Look("alerts", None, [])], "somebody else's look is under way"
    sweep(app, "alerts")
    (look,) = told()
    assert (look.seconds or 9) < 5
    assert look.unread == []
    monkeypatch.setattr(watched, "LATE", text("SELECT no_such_column"))
    sweep(app, "alerts")
    assert told()[0].unread == ["missed_schedule", "beat_silent"]


def test_what_is_quick_to_read_is_told_though_the_rest_takes_too_long(
    app: Celeriac, rows: Rows, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest ends with the time of the whole check, and keeps its alerts as they were."""

    def sleeps(_: Celeriac, connection: Connection) -> list[Measured]:
        told.append(rows("SELECT name FROM alerts_pending"))
        connection.exec_driver_sql("SELECT pg_sleep(600)")
        return []

    told: list[object] = []
    groups = {group if group.__name__ != "_roles" else sleeps: names for group, names in measure.GROUPS.items()}
    monkeypatch.setattr(measure, "GROUPS", groups)
    monkeypatch.setattr(review, "WHOLE", 2.0)
    rows(f"ALTER DATABASE {make_url(database_url).database} CONNECTION LIMIT 1")
    rows("INSERT INTO alerts (name, subject, value, threshold, severity, says, seen_by) "
         "VALUES ('queue_depth', 'work', 1, 1, 'warn', '', 'b')")  # fmt: skip
    began = time.monotonic()
    review.review(app)
    assert time.monotonic() - began < 20
    assert told == [[("connections_full",)]]
    assert rows("SELECT name FROM alerts") == [("queue_depth",)]
    ((unread,),) = rows("SELECT unread FROM repairs WHERE name = 'alerts'")
    assert {"queue_depth", "dead_letters"} <= {*unread}
    assert "connections_full" not in unread
