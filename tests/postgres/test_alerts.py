"""What alerts tell of: each cause above its threshold, for as long as it is there."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from celeriac import Celeriac, insights
from celeriac.alerts import measure
from celeriac.alerts.measure import GROUPS
from celeriac.alerts.rules import RULES, Measured, evaluate
from celeriac.doctor import examine
from celeriac.repair import sweep
from celeriac.settings import Settings
from celeriac.store.connections import Database
from tests.postgres.alerts import FIRES, looked
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, live_worker, registered
from tests.postgres.stages import enqueued, running
from tests.processes import Rows


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
    assert re.match(r"is 3[67]\d s late, more than 300 s, and no beat has run anything since; ", missed["says"])
    assert missed["says"].endswith("; run `celery -A test beat`")


def schedule(rows: Rows, name: str, minutes_ago: int = 0, enabled: bool = True, **more: Any) -> None:
    columns = "".join(f", {column}" for column in more)
    values = "".join(f", :{column}" for column in more)
    rows(
        f"""INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression, enabled, next_run_at{columns})
        VALUES (:name, 'work', '@hourly', :enabled, now() - :ago * interval '1 minute'{values})""",
        name=name, enabled=enabled, ago=minutes_ago, **more,
    )  # fmt: skip


def limits(database: str, login: str) -> dict[str, tuple[str, str, str]]:
    ways = {"login": (login, f"ALTER ROLE {login}"), "database": (database, f"ALTER DATABASE {database}")}
    return {
        kind: (of, f"{alter} CONNECTION LIMIT 4", f"{alter} CONNECTION LIMIT 8;") for kind, (of, alter) in ways.items()
    }


@pytest.mark.parametrize("kind", ["login", "database"])
def test_connections_are_short_where_the_login_s_or_the_database_s_are(
    touchy: Celeriac, rows: Rows, database_url: str, kind: str
) -> None:
    """The server's own limit is far away."""
    name = make_url(database_url).database
    greedy = f"greedy_{kind}"  # a login is the whole server's
    of, limited, cure = limits(str(name), greedy)[kind]
    rows(f"CREATE ROLE {greedy} LOGIN PASSWORD 'secret'")
    ours = {"application_name": "celeriac web"}
    engine = create_engine(make_url(database_url).set(username=greedy, password="secret"), connect_args=ours)
    try:
        with ExitStack() as held:
            for _ in range(4):
                held.enter_context(engine.connect())
            rows(limited)
            looked(touchy, rows)
        engine.dispose()
        ((says,),) = rows("SELECT says FROM alerts WHERE name = 'connections_full'")
        assert re.match(rf"\d+ of 4 connections that the {kind} {of} may have are in use, 4 of them by ", says)
        assert says.endswith(f", or {cure}")
        rows(cure)
        looked(touchy, rows)
        assert rows("SELECT says FROM alerts WHERE name = 'connections_full'") == []
    finally:
        engine.dispose()
        rows(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
        rows(f"DROP ROLE {greedy}")


def test_a_login_that_is_not_the_engines_may_use_all_it_has(touchy: Celeriac, rows: Rows, database_url: str) -> None:
    rows("CREATE ROLE reporting LOGIN PASSWORD 'secret' CONNECTION LIMIT 1")
    engine = create_engine(make_url(database_url).set(username="reporting", password="secret"))
    try:
        with engine.connect():
            looked(touchy, rows)
            assert rows("SELECT says FROM alerts WHERE name = 'connections_full'") == []
    finally:
        engine.dispose()
        rows("DROP ROLE reporting")


def test_a_late_schedule_is_told_with_what_cures_it(touchy: Celeriac, rows: Rows) -> None:
    rows("INSERT INTO beats (beat_id, hostname, pid) VALUES ('b', 'here', 8)")
    schedule(rows, "bad", minutes_ago=6, quarantined="unknown role «x»", owner="beat test")
    schedule(rows, "mine", minutes_ago=6, owner="beat test")
    schedule(rows, "another's", minutes_ago=6, owner="beat shop.app")
    schedule(rows, "passed by", minutes_ago=6, owner="beat billing")
    schedule(rows, "anybody's", minutes_ago=6)
    schedule(rows, "in time", minutes_ago=-9, owner="beat billing")
    rows("UPDATE celeriac.scheduled_jobs SET last_run_at = now() - interval '1 minute' WHERE name = 'in time'")
    looked(touchy, rows)
    told = {
        subject: says.partition(" s late, more than 300 s")[2]
        for subject, says in rows("SELECT subject, says FROM alerts WHERE name = 'missed_schedule'")
    }
    held = "end the transaction that holds its row or its task's unique key: `celeriac doctor` names it"
    assert told == {
        "bad": ": it cannot run: unknown role «x»; `celeriac schedules edit bad` changes it, and that tries it again; "
        "`celeriac schedules toggle bad off` switches it off",
        "mine": ", and no beat of test has run anything since; run `celery -A test beat`",
        "another's": ", and no beat of shop.app has run anything since; run `celery -A shop.app beat`",
        "passed by": f", though its beat runs others; {held}",
        "anybody's": f", though its beat runs others; {held}",
    }


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


def test_a_worker_that_drains_and_does_not_end_is_told_and_is_the_doctors_finding(app: Celeriac, rows: Rows) -> None:
    live_worker(rows, "drains", status="draining")
    live_worker(rows, "drains on", status="draining", resources='{"drain_overdue": 40}')
    sweep(app, "alerts")
    assert rows(FIRES) == [("drains_on", "drains on")]
    (trouble,) = [finding for finding in examine(app) if finding.check == "workers"]
    assert re.fullmatch(r"drains on: takes nothing more and should have ended 4\d s ago", trouble.says)


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


CLAIMED = """
    INSERT INTO tickets (token, role, ids, accounts, claimed_at, worker_id, worker_pid, started_at, heartbeat_at)
    SELECT gen_random_uuid(), :role, ARRAY[:id], ARRAY[:account], now() - :ago * interval '1 second', w, 1,
        CASE WHEN w IS NOT NULL THEN now() - :began * interval '1 second' END, CASE WHEN w IS NOT NULL THEN now() END
    FROM (SELECT CAST(:worker AS text)) AS t (w)"""


@pytest.mark.breaks_invariants
def test_an_account_whose_claimed_task_lies_behind_those_of_others_is_told(app: Celeriac, rows: Rows) -> None:
    """Each pass was fair: what it gave lies behind what was claimed before."""
    #: A task claimed so long ago, and when the one that runs was claimed and began.
    cases = {
        "work": (102, 200, 0), "slow": (102, 200, 0), "fair": (3, 200, 0), "idle": (102, None, 0),
        "same": (102, 200, 0), "paused": (102, 200, 0), "one_long_run": (102, 200, 101), "lost": (102, 50, 0),
    }  # fmt: skip
    registered(rows, *cases)
    rows("UPDATE roles SET paused = true WHERE role = 'paused'")
    rows("INSERT INTO batchers (role, seconds_per_task) VALUES ('slow', 60)")
    rows("INSERT INTO batchers (role, seconds_per_task) SELECT role, 0.2 FROM roles WHERE role <> 'slow'")
    for number, (role, (seconds, before, began)) in enumerate(cases.items()):
        account = "loud" if role == "same" else "quiet"
        rows(CLAIMED, role=role, id=2 * number + 1, account=account, ago=seconds, began=0, worker=None)
        if before is not None:
            rows(CLAIMED, role=role, id=2 * number + 2, account="loud", ago=before, began=began, worker="w")
    looked(app, rows)
    assert rows("SELECT name, subject, CAST(value AS int) FROM alerts WHERE name = 'unfair'") == [
        ("unfair", "work", 10)
    ]
    ((said,),) = rows("SELECT says FROM alerts WHERE name = 'unfair'")
    assert re.search(r"an account that runs nothing waits for 10\d s behind what others have claimed; 10 s is", said)


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
