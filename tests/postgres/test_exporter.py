"""What Prometheus reads: every figure of the catalogue, at 0 before there is anything, at a cost that is bounded."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import replace

import pytest
from alembic.script import ScriptDirectory
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Connection, create_engine, text

from celeriac import Celeriac
from celeriac.alerts.rules import RULES
from celeriac.metrics import exporter
from celeriac.metrics.catalogue import METRICS, PREFIX
from celeriac.metrics.exporter import Exporter
from celeriac.repair import minutes, sweep
from celeriac.store.connections import Database
from celeriac.store.migrate import configuration
from celeriac.store.migrations import ENGINE_VERSIONS
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, live_worker, registered
from tests.postgres.stages import claimed, enqueued, running
from tests.processes import Rows, until

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]

#: Of a role, in all that one process tells.
MOST_SERIES = 150


def parsed(told: bytes) -> Figures:
    families = text_string_to_metric_families(told.decode())
    return {(s.name.removeprefix(PREFIX), frozenset(s.labels.items())): s.value for f in families for s in f.samples}


def figures(app: Celeriac) -> Figures:
    return parsed(Exporter(app).text())


def at(found: Figures, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def unread_in(found: Figures) -> set[str]:
    return {dict(labels)["group"] for (name, labels), value in found.items() if name == "group_unread" and value}


def test_every_label_set_of_a_registered_role_is_there_at_0(app: Celeriac, rows: Rows) -> None:
    registered(rows, "idle")
    found = figures(app)
    told = {re.sub("^(wait|run)_seconds_.*", r"\1_seconds", name) for name, _ in found}
    per_schedule = {metric.name for metric in METRICS if metric.labels == ("schedule",)}
    assert told == {metric.name for metric in METRICS if metric.source == "sql"} - per_schedule
    of_role = {which: value for which, value in found.items() if ("role", "idle") in which[1]}
    assert {name: value for (name, _), value in of_role.items() if value} == {"wait_objective_seconds": 3600}
    assert Counter(name for name, _ in of_role)["workers"] == 3
    assert len(of_role) <= MOST_SERIES
    assert {dict(labels)["alert"] for name, labels in found if name == "alerts_firing"} == {r.name for r in RULES}


def test_what_is_compared_with_the_past_is_not_read_at_each_scrape(
    app: Celeriac, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "HOLDS", 0.0)
    counted, real = Counter[str](), exporter.compared

    def compared(connection: Connection) -> object:
        counted["compared"] += 1
        return real(connection)

    monkeypatch.setattr(exporter, "compared", compared)
    scraped = Exporter(app)
    assert scraped.text() != scraped.text() != scraped.text()
    assert counted["compared"] == 1
    monkeypatch.setattr(scraped, "_compared_until", 0.0)
    scraped.text()
    assert counted["compared"] == 2


def test_figures_are_those_of_the_rows(app: Celeriac, database: Database, rows: Rows) -> None:
    registered(rows, "work", window=10)
    live_worker(rows, "worker-1", concurrency=4)
    live_worker(rows, "gone", ago=5)
    running(database, new_task())
    enqueued(database, *(new_task(account=account) for account in ("a", "a", "b")))
    claimed(database, account="a")
    rows("INSERT INTO worker_tasks (task_id, role, waits_for) VALUES ('later', 'work', 'time')")
    finished(rows, "work", "failed", n=2)
    finished(rows, "work", n=3)
    rows("""INSERT INTO task_events (task, role, kind) VALUES (1, 'work', 'ticket_lost'), (1, 'work', 'late_finish'),
        (2, 'work', 'late_finish')""")
    rows("""INSERT INTO scheduled_jobs (name, target, cron_expression, next_run_at, skips)
        VALUES ('s', 'work', '@hourly', now() - interval '1 minute', 2)""")
    rows("""INSERT INTO alerts (name, subject, value, threshold)
        VALUES ('queue_depth', 'a', 2, 1), ('queue_depth', 'b', 2, 1)""")
    rows("INSERT INTO batchers (role, passes) VALUES ('work', 7)")
    found = figures(app)
    expected = {
        "tasks_ready": 2, "tasks_claimed": 1, "tasks_running": 1, "tasks_delayed": 1, "window": 10, "slots_free": 8,
        "worker_slots": 4, "workers_idle": 3, "accounts_waiting": 2, "tickets_lost": 1, "late_finishes": 2,
        "passes_total": 7,
    }  # fmt: skip
    assert {name: at(found, name, role="work") for name in expected} == expected
    assert [at(found, "recent_tasks", role="work", outcome=o) for o in ("completed", "failed")] == [3, 2]
    assert [at(found, "workers", role="work", state=s) for s in ("active", "draining", "silent")] == [1, 0, 1]
    assert at(found, "schedule_lateness_seconds", schedule="s") >= 60
    assert at(found, "schedule_skips_total", schedule="s") == 2
    assert at(found, "alerts_firing", alert="queue_depth") == 2
    assert [at(found, name) for name in ("scrape_ok", "redis_up", "tasks_estimated")] == [1, 1, 0]
    assert not unread_in(found)
    rows("ANALYZE tasks")
    assert at(figures(app), "tasks_estimated") == rows.one("SELECT count(*) FROM tasks")


def test_a_schedule_in_quarantine_is_late_to_figures_and_alerts(app: Celeriac, rows: Rows) -> None:
    rows("""INSERT INTO scheduled_jobs (name, target, cron_expression, next_run_at, quarantined)
        VALUES ('s', 'work', '@hourly', now() - interval '6 minutes', 'it raises')""")
    assert at(figures(app), "schedule_lateness_seconds", schedule="s") >= 360
    sweep(app, "alerts")
    assert rows("SELECT name, subject FROM alerts") == [("missed_schedule", "s")]


def test_successes_of_a_role_that_keeps_none_are_counted(app: Celeriac, rows: Rows) -> None:
    registered(rows, "work", keep=None)
    rows("INSERT INTO outcomes VALUES ('work', date_trunc('minute', now()), 7, 0, 0, 0, 1)")
    assert at(figures(app), "recent_tasks", role="work", outcome="completed") == 7


def test_what_is_counted_by_the_minute_only_grows(app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(rows, "work")
    registered(rows, "forgets", keep=None)
    monkeypatch.setattr(minutes, "LAG", -1.0)
    told, runs = [], []
    for n in (2, 0, 3):
        rows(
            "UPDATE minutes_until SET until = a, seen_at = a FROM date_trunc('minute', now() - interval '9 minutes') a"
        )
        finished(rows, "work", n=n, ago=5, waited=3, seconds=20)
        finished(rows, "work", "failed", n=n, ago=5, seconds=0.2)
        finished(rows, "forgets", "failed", n=n, ago=5)
        for _ in range(2):
            sweep(app, "minutes")
        rows("DELETE FROM history")
        rows("DELETE FROM minutes")
        found = figures(app)
        outcomes = [at(found, "tasks_ended_total", role="work", outcome=o) for o in ("completed", "failed")]
        waits = [at(found, "wait_seconds_bucket", role="work", le=le) for le in ("0.005", "2.5", "5.0", "+Inf")]
        names = ("wait_seconds_count", "wait_seconds_sum", "run_seconds_count")
        told.append((outcomes, waits, [round(at(found, name, role="work"), 3) for name in names]))
        runs.append(at(found, "run_seconds_sum", role="work"))
    assert told == [
        ([2, 2], [2, 2, 4, 4], [4, 6, 4]),
        ([2, 2], [2, 2, 4, 4], [4, 6, 4]),
        ([5, 5], [5, 5, 10, 10], [10, 15, 10]),
    ]
    assert 0 < runs[0] == runs[1] < runs[2]
    assert at(found, "tasks_ended_total", role="forgets", outcome="failed") == 5
    unknown = ("tasks_enqueued_total", "wait_seconds_count", "run_seconds_count")
    assert not [name for name, labels in found if ("role", "forgets") in labels and name in unknown]
    assert 0 <= at(found, "counts_behind_seconds") < 120


def test_a_role_nobody_registered_is_no_label(app: Celeriac, database: Database, rows: Rows) -> None:
    enqueued(database, new_task("whatever"))
    assert not [labels for _, labels in figures(app) if ("role", "whatever") in labels]


def test_a_room_is_counted_so_far(
    app: Celeriac, database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.metrics.read.COUNTED", 2)
    registered(rows, "work")
    enqueued(database, *(new_task() for _ in range(5)))
    assert at(figures(app), "tasks_ready", role="work") == 3


def test_a_reading_holds_for_a_while_and_is_shared(app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(rows, "work")
    readings: list[int] = []
    read = exporter.read

    def counted(*given: object) -> object:
        readings.append(1)
        return read(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(exporter, "read", counted)
    one, told = Exporter(app), set()
    threads = [threading.Thread(target=lambda: told.add(one.text())) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(told), len(readings)) == (1, 1)
    one._until = 0.0
    assert one.text() not in told
    assert len(readings) == 2


def test_a_group_that_is_not_read_in_time_is_named_and_hides_no_other(
    app: Celeriac, database_url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "PATIENCE_MS", 100)
    registered(rows, "work")
    other = create_engine(database_url)
    with other.begin() as connection:
        connection.execute(text("LOCK TABLE celeriac.scheduled_jobs IN ACCESS EXCLUSIVE MODE"))
        found = figures(app)
    other.dispose()
    assert at(found, "scrape_ok") == 1
    unread = unread_in(found)
    assert "schedules" in unread
    assert not unread & {"postgres", "backlogs", "served", "workers"}
    assert "beats" not in {name for name, _ in found}
    assert at(found, "tasks_ready", role="work") == at(found, "worker_clock_seconds") == 0
    monkeypatch.undo()
    assert not unread_in(figures(app))


@pytest.mark.parametrize(
    ("table", "hidden"), [("version", {"schema", "revision"}), ("minutes", {"snapshot"}), ("tasks", {"lock_keys"})]
)
def test_no_lock_hides_who_holds_it(app: Celeriac, database_url: str, rows: Rows, table: str, hidden: set[str]) -> None:
    registered(rows, "work")
    other = create_engine(database_url)

    def named() -> Figures:
        found = figures(app)
        return found if found.get(("table_locked_seconds", frozenset())) else {}

    with other.begin() as connection:
        connection.execute(text(f"LOCK TABLE celeriac.{table} IN ACCESS EXCLUSIVE MODE"))
        found = until(named, "the lock is told")
    other.dispose()
    unread = unread_in(found)
    assert hidden <= unread
    assert not unread & {"locks", "postgres"}
    assert 0 < at(found, "connections_ratio") < 1
    assert at(found, "disk_full") == at(found, "postgres_crowd_ratio") == 0


def test_no_group_begins_to_be_read_once_time_is_up(app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.metrics.read.BUDGET", -1.0)
    found = figures(app)
    assert {value for (name, _), value in found.items() if name == "group_unread"} == {1}
    assert at(found, "scrape_ok") == 0


def test_a_schema_that_lacks_a_table_is_told_to_be_behind(app: Celeriac, rows: Rows) -> None:
    (last,) = rows("SELECT version_num FROM celeriac.version")
    revisions = ScriptDirectory.from_config(configuration(ENGINE_VERSIONS))
    rows("UPDATE celeriac.version SET version_num = :former", former=revisions.get_revision(last[0]).down_revision)
    rows("ALTER TABLE celeriac.beats RENAME TO beats_to_come")
    found = figures(app)
    assert (at(found, "schema_behind"), at(found, "schema_ahead")) == (1, 0)
    assert "schedules" in unread_in(found)
    assert "schema" not in unread_in(found)
    rows("ALTER TABLE celeriac.beats_to_come RENAME TO beats")
    rows("UPDATE celeriac.version SET version_num = :last", last=last[0])
    assert at(figures(app), "schema_behind") == 0
    assert not unread_in(figures(app))


def test_a_postgres_that_is_away_is_told(app: Celeriac) -> None:
    app.settings = replace(app.settings, database_url="postgresql://nobody@127.0.0.1:1/none")
    assert at(figures(app), "scrape_ok") == 0
