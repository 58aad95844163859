"""Alerts fire while a value is above its threshold, once it was for as long as their rule wants."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from celeriac import Celeriac, insights
from celeriac.alerts import Rule, measure, record, review
from celeriac.alerts.measure import GROUPS
from celeriac.alerts.rules import RULES, Measured, evaluate
from celeriac.cli.check import problems
from celeriac.errors import ConfigurationError
from celeriac.insights import watched
from celeriac.repair import sweep
from celeriac.settings import Settings
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, live_worker, registered
from tests.postgres.stages import enqueued, running
from tests.processes import Rows

STATE = "SELECT name, subject, firing_since = last_seen_at FROM celeriac.alerts ORDER BY name, subject"
LETTER = "INSERT INTO dead_letters (digest, reason, size, message) VALUES (sha256('x'), 'x', 1, 'x')"
FIRES = "SELECT name, subject FROM celeriac.alerts ORDER BY name, subject"
WAITED = "UPDATE alerts_pending SET since = since - interval '1 hour'"


def fires(measure: str, value: float) -> bool:
    return bool(evaluate(RULES, [Measured(measure, "s", value)], Settings()))


@pytest.mark.parametrize(
    ("measure", "threshold"), [("queued", 1000), ("failed_rate", 0.1), ("longest_running", 3600), ("late", 300)]
)
def test_the_thresholds_are_the_seeds(measure: str, threshold: float) -> None:
    assert not fires(measure, threshold)
    assert fires(measure, threshold * 1.001)


def test_a_threshold_is_a_setting() -> None:
    settings = Settings.from_environ({"CELERIAC_ALERT_QUEUE_DEPTH": "5"})
    (alert,) = evaluate(RULES, [Measured("queued", "work", 7)], settings)
    assert str(alert) == "queue_depth: work: 7 tasks wait, more than 5"


def test_every_measure_is_read_by_somebody() -> None:
    read = {name for names in GROUPS.values() for name in names}
    assert {rule.measure for rule in RULES} == read
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.fixture
def touchy(app: Celeriac) -> Celeriac:
    app.settings = replace(app.settings, alert_queue_depth=2, alert_failed_rate=0.5)
    return app


def looked(app: Celeriac, rows: Rows) -> int:
    """A look, an hour after what was above a threshold got there."""
    sweep(app, "alerts")
    rows(WAITED)
    return sweep(app, "alerts")


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


def test_each_of_the_seeds_four_fires_for_its_own_subject(touchy: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "deep", "failing", "few", "slow", "calm")
    live_worker(rows, queues='["deep", "failing", "few", "slow", "calm"]')
    enqueued(database, *(new_task("deep") for _ in range(3)))
    finished(rows, "failing", "failed", n=21)
    finished(rows, "few", "failed", n=20)
    finished(rows, "calm", n=30)
    running(database, new_task("slow"))
    rows("UPDATE worker_tasks SET started_at = now() - interval '61 minutes' WHERE role = 'slow'")
    schedule(rows, "missed", minutes_ago=6)
    schedule(rows, "in time", minutes_ago=4)
    schedule(rows, "switched off", minutes_ago=6, enabled=False)
    looked(touchy, rows)
    assert rows(FIRES) == [
        ("failed_rate", "failing"), ("long_running", "slow"), ("missed_schedule", "missed"), ("queue_depth", "deep")
    ]  # fmt: skip
    with database.statement() as connection:
        told = insights.firing(connection)
    assert {(alert["name"], alert["threshold"]) for alert in told} == {
        ("failed_rate", 0.5), ("long_running", 3600), ("missed_schedule", 300), ("queue_depth", 2)
    }  # fmt: skip
    (missed,) = [alert for alert in told if alert["name"] == "missed_schedule"]
    assert (missed["severity"], missed["silenced_until"]) == ("page", None)
    assert missed["says"].startswith("is 360 s late")


def schedule(rows: Rows, name: str, minutes_ago: int = 0, enabled: bool = True, **more: Any) -> None:
    columns = "".join(f", {column}" for column in more)
    values = "".join(f", :{column}" for column in more)
    rows(
        f"""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, enabled, next_run_at{columns})
        VALUES (:name, 'work', '@hourly', :enabled, now() - :ago * interval '1 minute'{values})""",
        name=name, enabled=enabled, ago=minutes_ago, **more,
    )  # fmt: skip


def test_work_that_no_worker_takes_is_told(app: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work", "other", "paused")
    rows("UPDATE roles SET paused = true WHERE role = 'paused'")
    live_worker(rows, queues='["other"]')
    enqueued(database, new_task(), new_task("other"), new_task("paused"))
    looked(app, rows)
    assert rows(FIRES) == [("no_worker", "work")]
    live_worker(rows, "another")
    sweep(app, "alerts")
    assert rows(FIRES) == []


def test_what_waits_is_counted_to_a_bound_that_the_setting_moves(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "COUNTED", 1)
    registered(rows, "work")
    enqueued(database, *(new_task() for _ in range(5)))
    app.settings = replace(app.settings, alert_queue_depth=2)
    looked(app, rows)
    assert rows("SELECT name, value FROM alerts ORDER BY name") == [("no_worker", 3), ("queue_depth", 3)]


def test_of_a_role_that_keeps_no_successes_the_counted_ones_are_in_the_rate(touchy: Celeriac, rows: Rows) -> None:
    registered(rows, "work", "kept")
    live_worker(rows, queues='["work", "kept"]')
    rows("""UPDATE roles SET definition = definition || '{"keep": null}' WHERE role = 'work'""")
    rows("""INSERT INTO outcomes (role, minute, completed, failed, completed_again, failed_again, run_seconds)
        SELECT role, date_trunc('minute', now()) - interval '1 minute', 30, 0, 0, 0, 0 FROM roles""")
    for role in ("work", "kept"):
        finished(rows, role, "failed", n=25)
    looked(touchy, rows)
    assert rows(FIRES) == [("failed_rate", "kept")]


def test_a_task_that_waits_too_long_is_told(app: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work")
    live_worker(rows)
    enqueued(database, new_task())
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '61 minutes'")
    looked(app, rows)
    assert rows(FIRES) == [("long_wait", "work")]
    rows("""UPDATE roles SET definition = '{"wait_objective": 7200}'""")
    sweep(app, "alerts")
    assert rows(FIRES) == []


def test_of_many_accounts_the_last_is_looked_at_as_well(app: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work")
    live_worker(rows)
    enqueued(database, *(new_task(account=f"{i:03}") for i in range(150)))
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '61 minutes' WHERE account = '149'")
    looked(app, rows)
    assert rows(FIRES) == [("long_wait", "work")]


def test_more_dead_letters_than_the_largest_setting_are_told(app: Celeriac, rows: Rows) -> None:
    app.settings = replace(app.settings, alert_dead_letters=1_000)
    rows("""INSERT INTO dead_letters (digest, reason, size, message)
        SELECT sha256(CAST(i AS text)::bytea), 'x', 1, 'x' FROM generate_series(1, 1001) i""")
    sweep(app, "alerts")
    assert rows(FIRES) == [("dead_letters", "plain Celery")]


def test_a_worker_that_is_silent_is_told_until_nobody_expects_it_back(app: Celeriac, rows: Rows) -> None:
    app.settings = replace(app.settings, alert_heartbeat=0.001)
    for name, status in (("dead", "active"), ("stopped", "stopped")):
        live_worker(rows, name, ago=30, status=status)
    live_worker(rows, "long gone", ago=24 * 60)
    live_worker(rows, "to come", ago=-1)
    sweep(app, "alerts")
    assert rows(FIRES) == [("dead_worker", "dead")]


def test_schedules_without_a_beat_are_told(app: Celeriac, rows: Rows) -> None:
    app.settings = replace(app.settings, alert_beat=0.01)
    schedule(rows, "s", minutes_ago=-60, created_at="2026-01-01")
    sweep(app, "alerts")
    assert rows(FIRES) == [("beat_silent", "beat")]
    rows("INSERT INTO beats (beat_id, hostname, pid, last_tick_at) VALUES ('b', 'h', 1, now() + interval '1 minute')")
    sweep(app, "alerts")
    assert rows(FIRES) == []


def test_without_a_schedule_nobody_waits_for_a_beat(app: Celeriac, rows: Rows) -> None:
    app.settings = replace(app.settings, alert_beat=0)
    schedule(rows, "off", minutes_ago=60, enabled=False)
    sweep(app, "alerts")
    assert rows(FIRES) == []


def test_a_schedule_that_left_out_an_instant_is_told_for_an_hour(app: Celeriac, rows: Rows) -> None:
    schedule(rows, "skips", minutes_ago=-1, skips=3)
    rows("UPDATE scheduled_jobs SET last_skip_at = now() - interval '59 minutes'")
    sweep(app, "alerts")
    assert rows("SELECT name, subject, value FROM alerts") == [("skipped_instants", "skips", 3)]
    rows("UPDATE scheduled_jobs SET last_skip_at = now() - interval '61 minutes'")
    sweep(app, "alerts")
    assert rows(FIRES) == []


def test_a_redis_that_does_not_answer_is_told_by_who_asked_it(database_url: str, rows: Rows) -> None:
    settings = Settings(database_url=database_url, redis_url="redis://127.0.0.1:1/0")
    app = Celeriac("away", settings=settings, set_as_current=False)
    looked(app, rows)
    assert rows("SELECT name, subject, seen_by FROM alerts") == [("redis_away", "Redis", app.process_name)]
    app.publisher.close()
    app.database.dispose()


def test_tickets_that_redis_loses_again_and_again_are_told(app: Celeriac, rows: Rows) -> None:
    app.settings = replace(app.settings, alert_lost_tickets=2)
    rows("""INSERT INTO task_events (task, role, kind, at)
        SELECT i, 'work', 'ticket_lost', now() - i * interval '5 minutes' FROM generate_series(0, 3) i""")
    rows("INSERT INTO task_events (task, role, kind) VALUES (1, 'other', 'retry')")
    looked(app, rows)
    assert rows("SELECT name, subject, value FROM alerts") == [("lost_tickets", "work", 3)]


def test_an_outcome_that_was_refused_is_told_until_it_is_long_ago(app: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO task_events (task, role, kind) VALUES (1, 'work', 'late_finish'), (1, 'other', 'ticket_lost')")
    looked(app, rows)
    assert rows("SELECT name, subject, value FROM alerts") == [("late_finish", "work", 1)]
    rows("UPDATE task_events SET at = now() - interval '16 minutes'")
    looked(app, rows)
    assert rows("SELECT FROM alerts") == []


def test_an_account_that_passes_leave_out_is_told(app: Celeriac, rows: Rows) -> None:
    registered(rows, "work", "fair")
    seen = '[{"account": "a", "waiting": 9}, {"account": "b", "waiting": 1}]'
    for role, given in (("work", '{"a": 1}'), ("work", '{"a": 1}'), ("fair", '{"a": 1}'), ("fair", '{"b": 1}')):
        rows(
            """INSERT INTO passes (role, by, free, claimants, given)
            VALUES (:role, 'x', 1, CAST(:seen AS jsonb), CAST(:given AS jsonb))""",
            role=role, seen=seen, given=given,
        )  # fmt: skip
    looked(app, rows)
    assert rows("SELECT name, subject, value FROM alerts") == [("unfair", "work", 2)]


def test_an_old_snapshot_is_told(app: Celeriac, database_url: str, rows: Rows) -> None:
    app.settings = replace(app.settings, alert_transaction=0.001)
    engine = create_engine(database_url, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        looked(app, rows)
        assert rows(FIRES) == [("held_snapshot", "Postgres")]
    engine.dispose()
    sweep(app, "alerts")
    assert rows(FIRES) == []


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
    assert told()[0].unread == ["missed_schedule", "skipped_instants", "beat_silent"]


# -- an application's own ----------------------------------------------------------------------------------------------


@contextmanager
def module_of(*rules: Any) -> Iterator[str]:
    module = ModuleType("rules_of_a_test")
    module.rules = rules  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield f"{module.__name__}:rules"
    del sys.modules[module.__name__]


def of_tables(connection: Any) -> dict[str, float]:
    return {"things": connection.execute(text("SELECT count(*) FROM things")).scalar_one()}


MINE = Rule(name="too_many", of="a table", measure=of_tables, threshold=1, says="{value:.0f}, more than {threshold:g}")


def test_an_application_has_rules_of_its_own(app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    """One that cannot be read stops no other, and leaves its alerts as they were."""
    rows("CREATE TABLE things AS SELECT generate_series(1, 2)")
    rows(LETTER)
    with module_of(MINE) as app.alerts:
        assert sweep(app, "alerts") == 2
        rows("ALTER TABLE things RENAME TO others")
        rows("DELETE FROM dead_letters")
        assert sweep(app, "alerts") == 1
        assert rows("SELECT name, subject, says FROM alerts") == [("too_many", "things", "2, more than 1")]
        assert "could not be read" in caplog.text
        rows("ALTER TABLE others RENAME TO things")
        rows("DELETE FROM things")
        assert sweep(app, "alerts") == 1


def test_one_that_takes_too_long_keeps_no_other_waiting(
    app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def sleeps(connection: Any) -> dict[str, float]:
        connection.execute(text("SELECT pg_sleep(20)"))
        return {"things": 2}

    monkeypatch.setattr(review, "PATIENCE_MS", 100)
    rows(LETTER)
    with module_of(replace(MINE, measure=sleeps)) as app.alerts:
        assert sweep(app, "alerts") == 1
    assert rows(FIRES) == [("dead_letters", "plain Celery")]
    assert "could not be read" in caplog.text


def raises_of_another_database(connection: Any) -> dict[str, float]:
    with create_engine("postgresql://127.0.0.1:1/none").connect():
        return {}


BAD: dict[str, Rule] = {
    "no value": replace(MINE, measure=lambda _: {"things": None}),
    "no number": replace(MINE, measure=lambda _: {"things": float("nan")}),
    "a subject too long": replace(MINE, measure=lambda _: {"x" * 9_000: 2}),
    "a zero byte": replace(MINE, measure=lambda _: {"\0": 2}),
    "a sentence that does not format": replace(MINE, measure=lambda _: {"things": 2}, says="{nothing}"),
    "another database is away": replace(MINE, measure=raises_of_another_database),
    "an unknown severity": replace(MINE, measure=lambda _: {"things": 2}, severity="bad"),  # type: ignore[arg-type]
    "an unknown threshold": replace(MINE, measure=lambda _: {"things": 2}, threshold="unknown"),
    "for ever": replace(MINE, measure=lambda _: {"things": 2}, lasts=float("inf")),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_rule_of_an_application_ends_no_other(
    app: Celeriac, rows: Rows, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    rows(LETTER)
    with module_of(BAD[bad]) as app.alerts:
        assert sweep(app, "alerts") == 1
    assert rows(FIRES) == [("dead_letters", "plain Celery")]
    assert [record for record in caplog.records if record.exc_info]


def test_rules_that_cannot_be_imported_end_no_other(app: Celeriac, rows: Rows) -> None:
    rows(LETTER)
    app.alerts = "no_such_module:RULES"
    assert sweep(app, "alerts") == 1
    rows("UPDATE repairs SET at = at - interval '61 s'")
    rows("DELETE FROM dead_letters")
    assert review.review_if_late(app) == 1


def test_a_measure_may_tell_decimals(app: Celeriac, rows: Rows) -> None:
    with module_of(replace(MINE, measure=lambda _: {"things": Decimal(2)})) as app.alerts:
        assert sweep(app, "alerts") == 1


def test_another_application_leaves_its_alerts_alone_for_a_day(app: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO alerts (name, subject, value, threshold) VALUES ('too_many', 'things', 2, 1)")
    assert sweep(app, "alerts") == 0
    rows("UPDATE alerts SET last_seen_at = last_seen_at - interval '25 hours'")
    assert sweep(app, "alerts") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "beat_silent",
        Rule(name="beat_silent", of="beat", measure=of_tables, threshold=1, says=""),
        Rule(name="mine", of="beat", measure="queued", threshold=1, says=""),
        Rule(name="mine", of="beat", measure=of_tables, threshold="nothing", says=""),
    ],
)
def test_what_is_no_rule_of_an_application_is_refused(app: Celeriac, wrong: Any) -> None:
    told = "alerts='rules_of_a_test:rules': "
    with module_of(wrong) as app.alerts:
        with pytest.raises(ConfigurationError, match=told):
            review.rules_of(app)
        assert [problem for problem in problems(app) if told in problem]
