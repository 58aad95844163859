"""The commands an operator reaches for when something is wrong, each on a database of its own."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from celeriac import Celeriac
from celeriac.cli import output, within_celery
from celeriac.enqueue.rows import Receipt
from celeriac.errors import ConfigurationError
from celeriac.insights import lists
from celeriac.repair import sweep
from celeriac.store.connections import Database
from celeriac.store.drift import MIGRATE, drift, expected
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, registered
from tests.processes import Rows

Put = Callable[..., Receipt]
Run = Callable[..., Result]

DONE, PROBLEM, USAGE, REFUSED = 0, 1, 2, 3

FAILED = """INSERT INTO worker_tasks (task_id, role, status, completed_at, error_message)
    SELECT gen_random_uuid(), :role, 'failed', now() - n * interval '1 second', :says FROM generate_series(1, :n) n"""

WORKER = """INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, queues, resources, last_heartbeat_at)
    VALUES (:w, 'host', 1, 8, CAST(:queues AS jsonb), CAST(:resources AS jsonb), now() - :ago * interval '1 second')"""


#: Workers' leases count from a restart of Postgres on.
UP = """CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT CAST('-infinity' AS timestamptz) $$"""


@pytest.fixture
def run(app: Celeriac) -> Run:
    """`run("top")`: as `celery -A … celeriac top`."""
    app.register_roles()

    def invoke(*arguments: object, **options: Any) -> Result:
        given = SimpleNamespace(app=app)
        return CliRunner().invoke(within_celery, [str(a) for a in arguments], obj=given, **options)

    return invoke


def value(result: Result, exit_code: int = DONE) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def fail(rows: Rows, n: int, says: str, role: str = "work") -> None:
    rows(FAILED, n=n, says=says, role=role)


def work(rows: Rows, name: str = "w", *, ago: float = 0, queues: str = "[]", resources: str = "{}") -> None:
    rows(WORKER, w=name, ago=ago, queues=queues, resources=resources)


def test_all_tasks_of_a_group_of_failures_are_listed(run: Run, rows: Rows) -> None:
    fail(rows, 3, "HTTPError: 502 of 'a'")
    fail(rows, 2, "KeyError: 'b'")
    (group, _) = value(run("failures", "--json"))["groups"]
    assert [one["id"] for one in value(run("failures", "tasks", group["fingerprint"], "--json"))["items"]] == [3, 2, 1]
    first = run("failures", "tasks", group["fingerprint"], "--limit", 2).output.splitlines()
    assert (len(first), first[-1]) == (4, "there may be more with --before 2")
    assert run("failures", "tasks", "none").exit_code == REFUSED


def test_failures_are_shown_in_groups_and_a_group_is_retried_whole(run: Run, rows: Rows) -> None:
    fail(rows, 3, "HTTPError: 502 of 'a'")
    fail(rows, 2, "KeyError: 'b'")
    shown = run("failures").output.splitlines()
    assert ["HTTPError: 502 of 'a'" in shown[1], "KeyError" in shown[2]] == [True, True]
    assert shown[-1] == "5 failures looked at, the newest"
    assert re.findall(r"first seen +last seen", shown[0])
    (first,) = rows("SELECT min(completed_at) FROM worker_tasks WHERE error_message LIKE 'HTTP%'")[0]
    assert output.cell(first) in shown[1]
    http = value(run("failures", "--role", "work", "--since", 3600, "--json"))["groups"][0]["fingerprint"]
    assert run("failures", "retry", http, "--preview").output.strip() == "3 tasks"
    assert "retry 3 tasks? [y/N]" in run("failures", "retry", http, input="n\n").stderr
    assert run("failures", "retry", http, "--yes", "--why", "mended").stdout.strip() == "3 changed, 0 not"
    assert rows("SELECT status, count(*) FROM worker_tasks GROUP BY status ORDER BY status") == [
        ("failed", 2), ("pending", 3),
    ]  # fmt: skip
    assert run("failures", "retry", "nonesuch").exit_code == REFUSED


def test_a_group_of_failures_is_marked_with_a_note(run: Run, rows: Rows) -> None:
    fail(rows, 2, "KeyError: 'b'")
    for says in ("KeyError: 'c'", "ValueError: no"):
        rows(
            """INSERT INTO worker_tasks (task_id, role, waits_for, scheduled_for)
            VALUES (:says, 'work', 'time', now() + interval '1 hour')""", says=says,
        )  # fmt: skip
        rows("UPDATE tasks SET error_message = :says, retry_count = 1 WHERE task_id = :says", says=says)
    (group,) = value(run("failures", "--json"))["groups"]
    assert (group["count"], group["retrying"]) == (2, 1)
    assert run("failures", "mark", group["fingerprint"], "known", "--note", "see 7").stdout.strip().endswith("is known")
    assert value(run("failures", "--state", "known", "--json"))["groups"][0]["mark"]["note"] == "see 7"
    assert "known" in run("failures").output.splitlines()[1]
    assert value(run("failures", "--state", "open", "--json"))["groups"] == []
    assert rows("SELECT action, kind, target, why FROM audit") == [("mark", "failure", group["fingerprint"], "see 7")]
    assert run("failures", "mark", "0123456789ab", "known").exit_code == REFUSED


def test_top_shows_accounts_beside_their_fair_share(run: Run, put: Put, rows: Rows) -> None:
    for account in ("a", "a", "b"):
        put(account=account)
    rows("INSERT INTO batchers (role, cursor) VALUES ('work', 'b')")
    assert run("top", "work").output.splitlines()[-1] == "the next pass begins after 'b'"
    assert value(run("top", "work", "--json"))["cursor"] == "b"
    rows("DELETE FROM batchers")
    lines = [line.split() for line in run("top", "work").output.splitlines()]
    assert [line[:2] for line in lines] == [["account", "waiting"], ["a", "2"], ["b", "1"]]
    assert {share["account"] for share in value(run("top", "--json"))["accounts"]} == {"a", "b"}
    assert "there are more accounts" in run("top", "--limit", 1).output
    whole = value(run("top", "--account", "a", "--json"))
    assert [(one["role"], one["ready"]["n"], len(whole["oldest"])) for one in whole["roles"]] == [("work", 2, 2)]
    lines = run("top", "--account", "a").output.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "What it has of each role:", "What it holds:", "What it has that is due, the oldest first:",
    ]  # fmt: skip
    assert run("top", "work", "--account", "a").exit_code == USAGE


def test_waits_shows_why_a_roles_tasks_wait(run: Run, rows: Rows, put: Put) -> None:
    registered(rows, "work")
    work(rows, queues='["work"]')
    for delay in (0.0, 0.0, 60.0):
        put(delay=delay)
    first, second = run("waits", "work").output.splitlines()
    assert (first.split()[:4], second.split()) == (["2", "next", "in", "line:"], ["1", "not", "due", "yet"])
    assert ", at " in first
    assert [one["reason"] for one in value(run("waits", "work", "--json"))] == ["runnable", "later"]
    assert run("waits", "no_such_role").exit_code == REFUSED


def test_unique_keys_shows_who_has_them(run: Run, put: Put) -> None:
    for key in ("b", "a"):
        put(unique_key=key)
    (_, first, _), more = run("unique-keys", "work").output.splitlines(), run("unique-keys", "--limit", 1).output
    assert first.split()[:2] == ["work", "a"]
    assert more.splitlines()[-1] == "there may be more with --limit"
    assert [one["unique_key"] for one in value(run("unique-keys", "--json"))] == ["a", "b"]


def test_locks_shows_the_holder_and_its_queue(run: Run, rows: Rows, put: Put, database: Database) -> None:
    stages.running(database, new_task(lock_key="k"))
    behind = [put(lock_key="k").id for _ in range(2)]
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '1 hour'")
    assert "60 min, stale" in run("locks").output
    one = value(run("locks", "k", "--json"))
    assert (one["lock"]["status"], [waiting["id"] for waiting in one["queue"]]) == ("running", behind)
    assert run("locks", "k", "--limit", 1).output.splitlines()[-1] == "1 more with --limit"


def test_capacity_and_the_audit_trail_are_told(run: Run, rows: Rows, put: Put) -> None:
    rows("INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{}')")
    task = put().id
    run("cancel", task, "--why", "sold")
    put()
    (figures,) = value(run("capacity", "work", "--json"))
    assert (figures["pending_tasks"], figures["workers_needed"]["for_1_hour"]) == (1, None)
    assert run("capacity").output.splitlines()[-1].split()[:2] == ["work", "1"]
    assert run("capacity", "nonesuch").exit_code == REFUSED
    (entry,) = value(run("audit", "--kind", "task", "--target", task, "--json"))
    assert (entry["action"], entry["by"], entry["why"]) == ("cancel", f"cli:{getpass.getuser()}", "sold")
    assert "sold" in run("audit").output
    assert value(run("audit", "--action", "cancel", "--newer-than", 60, "--json")) == [entry]
    assert entry["via"] == "command line"
    assert value(run("audit", "--by", "nobody", "--json")) == []
    run("pause", "role", "work")
    assert "there may be more with --before" in run("audit", "--newer-than", 60, "--limit", 1).output


def test_metrics_of_the_last_hour_are_told(run: Run, rows: Rows) -> None:
    registered(rows, "work")
    finished(rows, n=9, seconds=2)
    finished(rows, status="failed", seconds=2)
    (figures,) = value(run("metrics", "work", "--json"))
    assert (figures["success_rate"], figures["retry_rate"]) == (pytest.approx(0.9), 0)
    line = run("metrics").output.splitlines()[-1]
    assert line.split("  ")[0] == "work"
    assert ("90 %" in line, "2.0" in line) == (True, True)
    assert run("metrics", "nonesuch").exit_code == REFUSED


def test_the_state_that_the_last_review_left_is_told(run: Run, rows: Rows, app: Celeriac) -> None:
    registered(rows, "work")
    assert run("reviews", "work").exit_code == REFUSED
    sweep(app, "review")
    (state,) = value(run("reviews", "work", "--json"))
    assert (state["state"], state["reviewed_by"], state["found"]["ready"]) == ("reviewed", app.process_name, 0)
    assert run("reviews").output.splitlines()[-1].split()[:2] == ["work", "reviewed"]


def test_workers_tell_memory_cpu_and_why_they_back_off(run: Run, rows: Rows) -> None:
    said = '{"memory_percent": 91.4, "cpu_percent": 12.0, "is_backing_off": true, "backoff_reason": "memory"}'
    work(rows, resources=said)
    assert run("workers").output.splitlines()[1].split()[-4:] == ["91%", "12%", "memory", "[]"]
    rows('UPDATE celeriac.workers SET resources = \'{"memory_percent": "much"}\'')
    assert run("workers").exit_code == DONE


def test_workers_tell_their_release_and_what_they_did_and_one_its_hour(run: Run, rows: Rows) -> None:
    work(rows)
    rows("UPDATE workers SET version = '0.1.0'")
    registered(rows, "work")
    finished(rows, "work", n=3)
    assert run("workers").output.splitlines()[1].split()[:4] == ["w", "host", "1", "0.1.0"]
    (told,) = value(run("workers", "--json"))
    assert (told["worker_id"], told["done_last_hour"]) == ("w", {"n": 3, "exact": True})
    rows("""INSERT INTO celeriac.worker_samples VALUES ('w', now() - interval '2 minutes', 50, 12, NULL),
        ('w', now() - interval '1 minute', 91.4, 12, 'Memory at 91 %')""")
    assert [one["memory_percent"] for one in value(run("workers", "hour", "w", "--json"))] == [50.0, 91.4]
    assert run("workers", "hour", "w").output.splitlines()[2].split()[-6:] == ["91%", "12%", "Memory", "at", "91", "%"]


def test_status_tells_of_redis_of_beats_and_of_what_is_due_for_longest(
    run: Run, rows: Rows, put: Put, app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = put("busy").id
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '3 hours' WHERE id = :i", i=task)
    assert "beat      none ticks" in run("status").output
    rows("INSERT INTO celeriac.beats (beat_id, hostname, pid) VALUES ('host:1', 'host', 1)")
    shown = run("status").output
    for line in ("oldest    due for 3 h, of busy", "redis     answers", "beat      host:1 ticked "):
        assert line in shown
    now = value(run("status", "--json"))
    assert (now["redis"], [beat["beat_id"] for beat in now["beats"]]) == (True, ["host:1"])
    monkeypatch.setattr(app.publisher, "answers", Mock(side_effect=ConfigurationError("no such Redis")))
    assert "redis     does not answer" in run("status").output


def test_list_finds_by_age_error_and_key_in_every_state(run: Run, rows: Rows, put: Put) -> None:
    fail(rows, 1, "HTTPError: Timed OUT")
    old, keyed = put(), put(lock_key="k")
    retried = put()
    rows("UPDATE celeriac.tasks SET error_message = 'timed out once' WHERE id = :i", i=retried.id)
    rows("UPDATE celeriac.tasks SET created_at = now() - interval '1 day' WHERE id = :i", i=old.id)

    def listed(*options: object) -> list[str]:
        return [item["status"] for item in value(run("list", *options, "--json"))["items"]]

    assert listed("--error", "timed out") == ["pending", "failed"]
    assert len(listed("--newer-than", 3600)) == 3
    assert listed("--lock-key", "k") == ["pending"]
    run("cancel", keyed.id)
    assert listed("--lock-key", "k") == ["cancelled"]
    assert run("list", "--newer-than", "nan").exit_code == REFUSED


def test_list_and_bulks_are_narrowed_by_priority_and_schedule(run: Run, rows: Rows, put: Put) -> None:
    low, tick = put(priority=-5), put(priority=60)
    rows("UPDATE celeriac.tasks SET task_id = 'nightly@2031-01-01T00:00:00Z' WHERE id = :i", i=tick.id)
    for options, meant in (
        (("--priority", "50.."), tick), (("--priority=-9..10",), low), (("--schedule", "nightly"), tick),
    ):  # fmt: skip
        assert [item["id"] for item in value(run("list", *options, "--json"))["items"]] == [meant.id], options
        assert run("prioritise", 7, *options, "--preview").stdout.strip() == "1 tasks", options
    bulk = value(run("bulk", "ask", "prioritise", "--to", 70, "--priority", "50..", "--yes", "--json"))
    assert (bulk["done"], bulk["filter"]["priority"]) == (1, "50..")
    assert rows("SELECT id, priority FROM worker_tasks ORDER BY id") == [(low.id, -5), (tick.id, 70)]
    assert run("list", "--priority", "high").exit_code == REFUSED


def test_list_looks_on_where_few_are_meant(run: Run, rows: Rows, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKS_AT", 50)
    wanted = put(account="rare").id
    rows("INSERT INTO worker_tasks (task_id, role) SELECT gen_random_uuid(), 'work' FROM generate_series(1, 300)")
    page = value(run("list", "--account", "rare", "--limit", 1, "--json"))
    assert [item["id"] for item in page["items"]] == [wanted]


def test_what_waits_for_its_time_is_due_now(run: Run, rows: Rows, put: Put) -> None:
    planned, ready = put(delay=3_600.0), put()
    put("other", delay=3_600.0)
    assert run("hasten", planned.id, "--why", "asked").stdout.strip() == "1 changed, 0 not"
    assert run("hasten", ready.id).exit_code == REFUSED
    assert run("hasten", "--role", "other", "--yes").stdout.strip() == "1 changed, 0 not"
    assert rows("SELECT count(*) FROM celeriac.audit WHERE action = 'hasten'") == [(2,)]
    assert rows("SELECT id FROM worker_tasks WHERE scheduled_for > now()") == []


def test_a_bulk_says_how_many_are_meant_in_all(run: Run, rows: Rows, put: Put) -> None:
    for _ in range(5):
        put(account="acme")
    assert run("cancel", "--account", "acme", "--preview").stdout.strip() == "5 tasks"
    assert run("cancel", "--account", "acme", "--most", 2, "--preview").stdout.strip() == "2 of 5 tasks"
    assert "cancel 2 of 5 tasks? [y/N]" in run("cancel", "--account", "acme", "--most", 2, input="n\n").stderr
    done = run("cancel", "--account", "acme", "--most", 2, "--yes").stdout
    assert done.strip() == "2 changed, 0 not; 3 more are meant"
    assert run("prioritise", 7, "--account", "acme", "--yes").stdout.strip() == "3 changed, 0 not"


def test_a_pause_says_what_waits(run: Run, rows: Rows, put: Put) -> None:
    rows("INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{}')")
    put(account="acme")
    put(account="acme")
    assert run("pause", "role", "work").stdout.strip() == "work is paused; 2 of its tasks wait"
    assert run("pause", "account", "acme").stdout.strip() == "acme is paused; 2 of its tasks wait"


def test_what_a_dead_worker_holds_is_recovered_now(run: Run, rows: Rows, database: Database) -> None:
    stages.running(database, new_task(), new_task())
    work(rows, stages.WORKER, ago=300)
    assert run("recover", stages.WORKER).exit_code == REFUSED, "its tickets say it lives"
    rows(UP)
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '5 minutes'")
    assert run("recover", "--preview").stdout.strip() == "0 tasks", "their role allows longer"
    assert run("recover", "--silent", 120, "--preview").stdout.strip() == "2 tasks"
    assert "recover 2 tasks of worker-1? [y/N]" in run("recover", stages.WORKER, input="n\n").stderr
    assert run("recover", stages.WORKER, "--yes").stdout.strip() == "2 of 2 tasks recovered; work: 2"
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
    assert rows.one("SELECT count(*) FROM celeriac.audit WHERE action = 'recover-stale'") == 2
    assert run("recover", "nobody").exit_code == REFUSED


def test_all_silent_workers_are_recovered_by_the_sweep(run: Run, rows: Rows, database: Database) -> None:
    stages.running(database, new_task())
    rows(UP)
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '1 hour'")
    assert value(run("recover", "--yes", "--json")) == {"tasks": 1, "recovered": {"work": 1}}


def findings(result: Result) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(result.stdout):
        found.setdefault(finding["check"], []).append(finding)
    return found


def test_the_doctor_finds_nothing_wrong_with_a_sound_system(run: Run, rows: Rows) -> None:
    result = run("doctor", "--json")
    wrong = [finding for some in findings(result).values() for finding in some if not finding["ok"]]
    assert (wrong, result.exit_code) == ([], DONE)
    shown = run("doctor").output.splitlines()
    assert shown[0] == "✓ postgres: answers"
    assert all(line.startswith("✓ ") for line in shown)


def test_the_doctor_names_what_is_wrong_and_its_cure(run: Run, rows: Rows, put: Put, database: Database) -> None:
    rows(UP)
    put("unserved")
    stages.running(database, new_task())
    work(rows, stages.WORKER, ago=300)
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '5 minutes'")
    stages.enqueued(database, new_task("lost"))
    stages.claimed(database, "lost")
    rows("UPDATE celeriac.tickets SET claimed_at = now() - interval '1 hour' WHERE role = 'lost'")
    rows("INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES ('daily', 'work', '@daily')")
    rows("INSERT INTO celeriac.beats (beat_id, hostname, pid) VALUES ('b', 'h', 1)")
    rows("UPDATE celeriac.beats SET last_tick_at = now() - interval '9 minutes'")
    result = run("doctor", "--json")
    wrong = {name: some[0] for name, some in findings(result).items() if not some[0]["ok"]}
    assert result.exit_code == PROBLEM
    assert set(wrong) == {"workers", "roles", "beat", "tickets"}
    assert wrong["workers"]["cure"].startswith(f"if it is dead, run `celeriac recover {stages.WORKER}`")
    assert "worker -Q" in wrong["roles"]["cure"]
    assert "the last tick was 9 min ago" in wrong["beat"]["says"]
    assert wrong["tickets"]["says"].startswith("1 are neither started nor in Redis")


def test_who_drains_takes_no_queue_for_the_doctor(run: Run, rows: Rows, put: Put) -> None:
    put("busy")
    work(rows, queues='["busy"]')
    assert findings(run("doctor", "--json"))["roles"][0]["ok"]
    rows("UPDATE celeriac.workers SET status = 'draining'")
    assert not findings(run("doctor", "--json"))["roles"][0]["ok"]


def test_the_doctor_tells_of_schedules_that_no_beat_runs(run: Run, rows: Rows) -> None:
    """Another app's beat ticks beside them, and one cannot run at all."""
    rows("INSERT INTO celeriac.beats (beat_id, hostname, pid) VALUES ('b', 'h', 1)")
    rows("INSERT INTO celeriac.scheduled_jobs (name, target, cron_expression) VALUES ('daily', 'work', '@daily')")
    assert findings(run("doctor", "--json"))["beat"][0]["ok"]
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '1 hour'")
    (late,) = findings(run("doctor", "--json"))["beat"]
    assert (late["ok"], late["says"].endswith("and schedules wait for one: daily")) == (False, True)
    rows("UPDATE celeriac.scheduled_jobs SET quarantined = 'there is no role work'")
    (cannot,) = findings(run("doctor", "--json"))["beat"]
    assert cannot["says"] == "the schedule daily cannot run: there is no role work"


def test_the_doctor_tells_what_keeps_vacuum_and_who_fills_the_connections(
    run: Run, rows: Rows, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.doctor.machinery.OLD", 0.0)
    monkeypatch.setattr("celeriac.doctor.machinery.FULL", 0.0)
    monkeypatch.setattr("celeriac.doctor.machinery.SKEW", -1.0)
    with database.engine.begin() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        found = findings(run("doctor", "--json"))
    assert f"SELECT pg_terminate_backend({pid});" in " ".join(f["cure"] or "" for f in found["old transactions"])
    assert [found[name][0]["ok"] for name in ("connections", "clock")] == [False, False]


def test_the_doctor_tells_a_redis_that_evicts(run: Run, app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.publisher, "ask", lambda _: {"maxmemory_policy": "allkeys-lru"})
    (redis,) = findings(run("doctor", "--json"))["redis"]
    assert (redis["ok"], "noeviction" in redis["cure"]) == (False, True)
    monkeypatch.setattr(app.publisher, "ask", lambda _: None)
    assert "✕ redis: does not answer: nothing starts" in run("doctor").output


@pytest.mark.breaks_invariants
def test_the_doctor_tells_what_the_schema_lacks_with_what_makes_it(run: Run, rows: Rows, database: Database) -> None:
    for dropped in (
        "INDEX celeriac.history_ended_badly", "TABLE celeriac.unparking", "FUNCTION celeriac.burst(text) CASCADE",
    ):  # fmt: skip
        rows(f"DROP {dropped}")
    rows("INSERT INTO celeriac.afterwards (revision, statements) VALUES ('celeriac_0009', '{SELECT 1}')")
    rows("ALTER TABLE celeriac.workers DROP COLUMN resources, DROP CONSTRAINT workers_status_known")
    found = {f["says"]: f["cure"] for f in findings(run("doctor", "--json"))["schema"]}
    assert found.pop("what celeriac_0009 has to do afterwards is not done") == "run `celeriac migrate`"
    assert set(found) >= {
        "the index history_ended_badly is missing", "the table unparking is missing",
        "the function burst is missing", "the column workers.resources is missing",
        "the constraint workers.workers_status_known is missing",
    }  # fmt: skip
    for cure in found.values():
        if not cure.startswith("run "):
            rows(cure)
    assert run("migrate").exit_code == DONE
    with database.statement() as connection:
        assert drift(connection) == []


def test_all_that_a_migration_makes_is_expected(database: Database) -> None:
    """A migration that makes something says it in SQL where `drift` reads it, and makes nothing it does not read."""
    of_each: dict[str, set[str]] = {}
    for part in expected():
        of_each.setdefault(part.kind, set()).add(part.name)
    with database.statement() as connection:
        assert drift(connection) == []
        tables = connection.exec_driver_sql(
            r"SELECT tablename FROM pg_tables WHERE schemaname = 'celeriac' AND tablename !~ '^history_\d|^version$'"
        )
        assert set(tables.scalars()) == of_each["table"]
        indexes = connection.exec_driver_sql(
            """SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            WHERE c.relnamespace = CAST('celeriac' AS regnamespace) AND NOT c.relispartition
                AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid)"""
        )
        assert set(indexes.scalars()) == of_each["index"]
        functions = connection.exec_driver_sql(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = CAST('celeriac' AS regnamespace)"
        )
        assert set(functions.scalars()) == of_each["function"]
    assert {part.mend for part in expected() if part.kind == "function"} == {MIGRATE}


EVIL = "a\x1b]0;title\x07\u202eb\x9bc\x7f"


def test_what_is_others_text_never_orders_the_terminal(run: Run, rows: Rows, put: Put) -> None:
    task, _ = put(account=EVIL, lock_key=EVIL), put(account=EVIL, lock_key=EVIL)
    fail(rows, 1, f"HTTPError: {EVIL}")
    raw = set(EVIL) - set("a]0;title") - {"b", "c"}
    for command in (
        ("list",), ("show", task.id), ("failures",), ("top",), ("locks",), ("locks", EVIL), ("list", "--json"),
        ("failures", "--json"), ("pause", "account", EVIL), ("status",), ("show", EVIL), ("audit",),
    ):  # fmt: skip
        told = run(*command)
        assert not raw & set(told.output), command
        if "--json" not in command and command not in [("status",), ("audit",)]:
            assert "title" in told.output, command
    items = value(run("list", "--status", "pending", "--json"))["items"]
    assert {item["account"] for item in items} == {EVIL}, "programs get what there is"


def test_a_bulk_is_asked_for_shown_worked_on_and_stopped(run: Run, rows: Rows) -> None:
    fail(rows, 3, "boom")
    assert "retry all tasks of role work?" in run("bulk", "ask", "retry", "--role", "work", input="n\n").output
    done = value(run("bulk", "ask", "retry", "--role", "work", "--yes", "--why", "mended", "--json"))
    assert (done["state"], done["asked"], done["done"], done["why"]) == ("done", 3, 3, "mended")
    left = value(run("bulk", "ask", "cancel", "--role", "work", "--later", "--yes", "--json"))
    assert (left["state"], left["asked"]) == ("gathering", 0)
    assert value(run("bulk", "work", "--json")) == {"moved": 3}
    assert value(run("bulk", "show", left["id"], "--json"))["state"] == "done"
    assert [row["id"] for row in value(run("bulk", "list", "--json"))] == [left["id"], done["id"]]
    assert run("bulk", "stop", left["id"]).exit_code == REFUSED
    again = value(run("bulk", "ask", "prioritise", "--role", "work", "--to", 7, "--later", "--yes", "--json"))
    assert run("bulk", "stop", again["id"], "--why", "wrong").exit_code == DONE
    assert run("bulk", "ask", "retry", "--yes").exit_code == REFUSED, "a bulk of everything"


def test_a_list_is_a_file_of_all_that_are_meant(run: Run, rows: Rows) -> None:
    fail(rows, 30, "=boom")
    fail(rows, 2, "boom", role="other")
    whole = run("list", "--role", "work", "--format", "csv").output.splitlines()
    assert (len(whole), whole[0].split(",")[:3]) == (31, ["id", "task_id", "role"])
    assert all("'=boom" in line for line in whole[1:])
    some = run("list", "--role", "work", "--format", "ndjson", "--limit", 3).output.splitlines()
    assert [json.loads(line).get("error_message") for line in some] == ["=boom"] * 3 + [None]
    assert "the newest 3; there are more" in some[-1]
    assert run("list", "--format", "csv", "--offset", 1).exit_code == USAGE
    assert run("list", "--format", "csv", "--limit", 10**6).exit_code == REFUSED
