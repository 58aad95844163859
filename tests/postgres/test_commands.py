"""The commands that see and steer, each on a database of its own."""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from celeriac import Celeriac
from celeriac.cli import main, output, within_celery
from celeriac.enqueue.rows import Receipt
from celeriac.operate import tokens
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.conftest import new_task
from tests.processes import Rows

Put = Callable[..., Receipt]
Run = Callable[..., Result]

DONE, PROBLEM, USAGE, REFUSED = 0, 1, 2, 3


@pytest.fixture
def run(app: Celeriac) -> Run:
    """`run("show", "7")`: as `celery -A … celeriac show 7`."""

    @app.task(role="sync", prompt=False, shared=False, unique_by="store_id")
    def sync(store_id: int, note: str = "") -> None: ...

    app.register_roles()

    def invoke(*arguments: object, **options: Any) -> Result:
        given = SimpleNamespace(app=app)
        return CliRunner().invoke(within_celery, [str(a) for a in arguments], obj=given, **options)

    return invoke


def value(result: Result) -> Any:
    assert result.exit_code == DONE, result.output
    return json.loads(result.stdout)


def test_enqueue_takes_arguments_by_name_and_tells_what_became_of_them(run: Run, rows: Rows) -> None:
    new = value(run("enqueue", "sync", "store_id=7", "note=hello there", "--priority", 5, "--json"))
    assert new["is_new"] is True
    assert rows("SELECT id, kwargs, priority FROM worker_tasks") == [
        (new["id"], {"store_id": 7, "note": "hello there"}, 5)
    ]
    again = value(run("enqueue", "sync", "store_id=7", "--json"))
    assert (again["id"], again["is_new"]) == (new["id"], False)
    for refused, says in (
        (("sync", "store_id=1", "colour=1"), "unexpected keyword argument 'colour'"),
        (("nonesuch",), "no role 'nonesuch'"),
    ):
        result = run("enqueue", *refused)
        assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (REFUSED, True, 1)
    assert run("enqueue", "sync", "store_id").exit_code == USAGE
    assert run("enqueue", "sync", "store_id=1", "store_id=2").exit_code == USAGE


def test_many_lines_are_enqueued_with_progress(run: Run, rows: Rows, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    file.write_text("".join(f'{{"store_id": {n % 5}}}\n' for n in range(12)))
    done = run("enqueue", "sync", "--from", file, "--json")
    assert value(done) == {"enqueued": 5, "known": 7}
    assert run("enqueue", "sync", "--from", "-", input='{"store_id": 99}\n').stdout.startswith("1 enqueued")
    assert rows.one("SELECT count(*) FROM worker_tasks") == 6
    for more in ("store_id=7", "--task-id=one"):
        assert run("enqueue", "sync", more, "--from", file).exit_code == USAGE, "of a single task"
    bad = run("enqueue", "sync", "--from", "-", input='{"store_id": 100}\nnonsense\n')
    assert bad.exit_code == REFUSED
    assert "line 2 is no JSON object" in bad.stderr


def test_show_tells_a_task_by_either_id_and_why_it_waits(run: Run, put: Put, rows: Rows) -> None:
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    leader, task = put(lock_key="k"), put(lock_key="k")
    assert f"task {leader.id} (work) is pending and has its lock 'k'; 0 ahead" in run("show", task.id).output
    assert value(run("show", task.task_id, "--json"))["task"]["id"] == task.id
    nothing = run("show", "nonesuch")
    assert nothing.exit_code == REFUSED
    assert "there is no task 'nonesuch'" in nothing.stderr


def test_why_tells_each_check_and_stops_at_the_first_no(run: Run, put: Put, rows: Rows) -> None:
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    leader, task = put(lock_key="k"), put(lock_key="k")
    says = f"task {leader.id} (work) is pending and has its lock 'k'"
    lines = run("why", task.task_id).output.splitlines()
    assert lines[:4] == [
        f"task {task.id} (work): {says}",
        f"waits for: task {leader.id} to end: see celeriac why {leader.id}",
        "go first: 0",
        f"may start: unknown, because task {leader.id} has not begun",
    ]
    assert f"NO  lock     {says}" in lines
    assert lines[-1] == "-   worker   not asked yet"
    told = value(run("why", task.id, "--json"))
    assert (told["reason"], told["headline"], told["checks"][4]["facts"]["holder"]) == ("lock", says, leader.id)
    assert run("why", "nonesuch").exit_code == REFUSED


def test_list_filters_by_the_words_of_any_system_and_pages(run: Run, put: Put, database: Database) -> None:
    ids = [put(account=f"a{n % 2}").id for n in range(5)]
    put(delay=60.0)
    listed = value(run("list", "--status", "queued", "--account", "a0", "--limit", 2, "--json"))
    assert [item["id"] for item in listed["items"]] == [ids[4], ids[2]]
    more = value(run("list", "--status", "queued", "--account", "a0", "--after", listed["next"], "--json"))
    assert [item["id"] for item in more["items"]] == [ids[0]]
    assert len(value(run("list", "--status", "delayed", "--json"))["items"]) == 1
    assert f"more with --after '{ids[3]}'" in run("list", "--limit", 2, "--offset", 1).output
    assert run("list", "--status", "nonsense").exit_code == USAGE
    assert run("list", "--arg", "no value").exit_code == USAGE
    kwargs = value(run("show", str(ids[3]), "--json"))["task"]["kwargs"]
    called = [given for name, said in kwargs.items() for given in ("--arg", f"{name}={json.dumps(said)}")]
    assert ids[3] in [item["id"] for item in value(run("list", *called, "--json"))["items"]]
    assert value(run("list", *called, "--arg", "nothing=1", "--json"))["items"] == []
    assert run("list", "--limit", 0).exit_code == REFUSED


def test_retry_cancel_and_prioritise_change_tasks_named_or_meant(run: Run, rows: Rows, put: Put) -> None:
    ids = [put(account="acme").id for _ in range(3)]
    assert run("prioritise", 9, *ids[:2]).stdout.strip() == "2 changed, 0 not"
    assert run("cancel", "--account", "acme", "--preview").output.strip() == "3 tasks"
    assert "cancel 3 tasks? [y/N]" in run("cancel", "--account", "acme", input="n\n").stderr
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
    assert run("retry", "--older-than", 0, "--preview").output.strip() == "0 tasks", "none can be retried"
    assert run("cancel", "--account", "acme", "--yes", "--why", "a flood").exit_code == DONE
    done = run("retry", ids[0], ids[1], "--json")
    assert [change["target"] for change in value(done)["changed"]] == [str(i) for i in ids[:2]]
    assert rows("SELECT status, priority FROM worker_tasks ORDER BY id") == [
        ("pending", 9), ("pending", 9), ("cancelled", 0),
    ]  # fmt: skip
    me = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    assert rows("SELECT action, count(*), min(by), max(why) FROM celeriac.audit GROUP BY action ORDER BY action") == [
        ("cancel", 3, me, "a flood"), ("priority", 2, me, None), ("retry", 2, me, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db:5432/shop", "postgresql://me:a/hunter2@x@db/shop", "redis://:hunter2@r:6379/0",
        "postgresql://db/shop?user=me&password=hunter2&sslmode=require",
    ],
)  # fmt: skip
def test_no_password_is_printed(url: str) -> None:
    shown = output.without_password(url)
    assert "hunter2" not in shown
    assert shown.replace("***", "") in (url.replace(secret, "") for secret in ("hunter2", "a/hunter2@x"))


def test_what_the_life_of_a_task_forbids_is_refused_with_status_3(run: Run, put: Put) -> None:
    task = put().id
    refused = run("retry", task)
    assert refused.exit_code == REFUSED
    assert "the task is pending: only what failed or was cancelled can be retried" in refused.stderr
    assert run("cancel", 4711).exit_code == REFUSED
    assert run("cancel").exit_code == USAGE
    assert run("cancel", task, "--role", "work").exit_code == USAGE


def test_a_task_that_waits_has_other_arguments(run: Run, rows: Rows) -> None:
    run("enqueue", "sync", "store_id=7")
    task = rows.one("SELECT id FROM tasks")
    assert run("edit", task, "note=8").output.strip() == f"{task} is called with another note"
    assert rows("SELECT kwargs FROM tasks") == [({"store_id": 7, "note": 8},)]
    assert "unique_key would be another" in run("edit", task, "store_id=8").stderr
    assert run("edit", task, "nonesuch=8").exit_code == REFUSED
    assert run("edit", task).exit_code == USAGE


def test_what_a_handler_wrote_to_its_log_is_told(run: Run, rows: Rows, put: Put) -> None:
    task = put().id
    rows("INSERT INTO task_logs (task, attempt, level, line) VALUES (:id, 2, 'WARNING', 'page 7 of 12')", id=task)
    assert "2        WARNING  page 7 of 12" in run("log", task).output
    assert value(run("log", task, "--json"))[0]["line"] == "page 7 of 12"
    assert run("log", 4711).exit_code == REFUSED


def test_a_retry_goes_on_from_where_the_task_stopped(run: Run, rows: Rows) -> None:
    rows("""INSERT INTO worker_tasks (id, task_id, role, status, completed_at, retry_count)
        VALUES (5000, 'stopped', 'sync', 'failed', now(), 3)""")
    assert run("retry", "stopped", "--go-on").exit_code == DONE
    assert rows("SELECT status, retry_count FROM worker_tasks") == [("pending", 3)]


def test_roles_and_accounts_are_paused_and_resumed(run: Run, rows: Rows) -> None:
    assert run("pause", "role", "sync", "--why", "flood").output.strip() == "sync is paused"
    for slip in (("pause", "account", "acme"), ("account", "acme", "--cap", 3)):
        refused = run(*slip)
        assert (refused.exit_code, "had no task lately" in refused.stderr) == (REFUSED, True)
    assert run("pause", "account", "acme", "--create").exit_code == DONE
    assert value(run("account", "acme", "--weight", 2, "--cap", 3, "--json"))["after"]["cap"] == 3
    assert rows("SELECT role FROM celeriac.roles WHERE paused") == [("sync",)]
    assert run("resume", "role", "sync").exit_code == DONE
    assert rows("SELECT account, weight, cap, paused FROM celeriac.account_policies") == [("acme", 2.0, 3, True)]
    assert run("pause", "role", "nonesuch").exit_code == REFUSED
    assert run("pause", "role", "sync", "--for", 600).output.strip() == "sync is paused for 10 min"
    assert rows("SELECT paused, paused_until > now() FROM roles WHERE role = 'sync'") == [(True, True)]
    assert run("pause", "account", "acme", "--for", 600).exit_code == USAGE
    assert run("account", "acme").exit_code == USAGE


def test_a_roles_limits_are_set_and_lifted(run: Run, rows: Rows) -> None:
    assert (
        run("limit", "sync", "--rate", "10/m", "--soft", "2.5").output.strip() == "sync: rate_limit=10/m, timeout=2.5"
    )
    assert run("limit", "sync", "--rate", "none").output.strip() == "sync: timeout=2.5"
    assert rows("SELECT role, rate_limit, timeout FROM celeriac.role_limits") == [("sync", None, 2.5)]
    for wrong in (["--rate", "often"], [], ["--soft", "soon"]):
        assert run("limit", "sync", *wrong).exit_code != DONE
    assert run("limit", "nonesuch", "--rate", "1").exit_code == REFUSED


def test_status_shows_what_waits_runs_is_late_and_is_paused(run: Run, rows: Rows, put: Put, database: Database) -> None:
    stages.running(database, new_task("busy"))
    put("busy", lock_key="k")
    put("busy", lock_key="k")
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '3 hours' WHERE lock_key = 'k'")
    for _ in range(2):
        rows("UPDATE worker_tasks SET waits_for = 'account' WHERE id = :id", id=put("busy", account="acme").id)
    run("schedule", "add", "nightly", "0 3 * * *", "sync", "store_id=1")
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '10 min'")
    rows(
        """INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency) VALUES (:w, 'host', 1, 8)""",
        w=stages.WORKER,
    )
    run("pause", "role", "sync")
    run("pause", "account", "acme")
    shown = run("status").output
    assert [" ".join(line.split()) for line in shown.splitlines() if line.startswith(("busy", "sync"))] == [
        "busy 1 0 1 2 0 0 1 - - 3 h -", "sync 0 0 0 0 0 0 0 - 2000 - paused",
    ]  # fmt: skip
    for line in ("1 workers, 8 slots, 1 busy", "late      nightly: 10 min", "paused    account acme"):
        assert line in shown
    now = value(run("status", "--json"))
    assert now["tasks"]["running"] == {"n": 1, "exact": True}
    assert {"busy", "sync"} <= {role["role"] for role in now["roles"]}
    assert value(run("workers", "--json"))[0]["worker_id"] == stages.WORKER


def test_a_worker_is_told_to_end_and_it_is_audited(run: Run, rows: Rows) -> None:
    worker = (
        "INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, status) VALUES (:w, 'host', 1, 8, :s)"
    )
    for name, status in (("node:7", "active"), ("gone", "stopped")):
        rows(worker, w=name, s=status)
    assert run("workers", "decommission", "node:7", "--why", "old").output.strip() == "node:7 is to end"
    again = value(run("workers", "--json", "decommission", "node:7"))
    assert (again["before"], again["after"]) == ({"status": "draining"}, {"status": "draining"})
    for refused, says in (("nobody", "there is no worker 'nobody'"), ("gone", "has stopped; nothing was changed")):
        result = run("workers", "decommission", refused)
        assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (REFUSED, True, 1)
    assert {w["worker_id"]: w["status"] for w in value(run("workers", "--json"))} == {
        "node:7": "draining", "gone": "stopped",
    }  # fmt: skip
    assert run("workers", "resume", "node:7").output.strip() == "node:7 goes on"
    assert rows("SELECT status FROM celeriac.workers WHERE worker_id = 'node:7'") == [("active",)]
    for refused, says in (("nobody", "there is no worker"), ("gone", "is stopped: nobody asked it to end")):
        assert says in run("workers", "resume", refused).stderr
    run("workers", "decommission", "node:7")
    rows("UPDATE celeriac.workers SET last_heartbeat_at = clock_timestamp()")
    assert "has heard that it is to end" in run("workers", "resume", "node:7").stderr
    rows("UPDATE celeriac.workers SET last_heartbeat_at = now() - interval '10 minutes'")
    assert "all are gone, the last was heard 10 min ago" in run("workers").output
    me = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    audit = "SELECT by, action, kind, target, before ->> 'status', why FROM celeriac.audit ORDER BY id LIMIT 2"
    assert rows(audit) == [
        (me, "decommission", "worker", "node:7", "active", "old"),
        (me, "decommission", "worker", "node:7", "draining", None),
    ]


def test_numbers_that_cannot_be_are_refused(run: Run) -> None:
    assert run("list", "--older-than", "nan").exit_code == REFUSED
    assert run("cancel", "--role", "work", "--most", -1).exit_code == REFUSED
    for command in (
        ("status", "--every", -1), ("status", "--every", "inf"), ("migrate", "--lock-timeout", -1),
        *(("migrate", "--statement-timeout", seconds) for seconds in ("nan", -1, "inf", "-inf")),
        ("serve", "--port", 65_536),
    ):  # fmt: skip
        refused = run(*command)
        assert refused.exit_code == USAGE
        assert [line[:7] for line in refused.stderr.splitlines()][-1:] == ["Error: "]


def test_status_shows_every_paused_account(run: Run, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.account_policies (account, paused)
        SELECT 'account-' || lpad(i::text, 5, '0'), i = 1500 FROM generate_series(1, 1500) i""")
    assert value(run("status", "--json"))["paused_accounts"] == ["account-01500"]


def test_an_app_that_is_named_is_that_one_or_none() -> None:
    for name, exit_code in (("tasks", DONE), ("tasks:app", DONE), ("tasks:ap", PROBLEM), ("tasks:stores", PROBLEM)):
        assert CliRunner().invoke(main, ["-A", name, "openapi"]).exit_code == exit_code, name


@pytest.mark.parametrize(
    ("seconds", "says"), [(None, "-"), (40, "40 s"), (719, "12 min"), (19_800, "6 h"), (259_200, "3 d")]
)
def test_an_age_is_told_in_one_unit(seconds: float | None, says: str) -> None:
    assert output.age(seconds) == says


def test_a_token_is_shown_once_and_revoked_by_name(run: Run, rows: Rows, database: Database) -> None:
    made = value(run("token", "create", "grafana", "--scope", "read", "--days", 30, "--json"))["token"]
    with database.statement() as connection:
        assert tokens.verify(connection, made) is not None
    assert made not in run("token", "list", "--json").output
    assert run("token", "create", "grafana", "--scope", "read").exit_code == REFUSED
    assert run("token", "revoke", "grafana").exit_code == DONE
    assert run("token", "revoke", "grafana").exit_code == REFUSED
    with database.statement() as connection:
        assert tokens.verify(connection, made) is None
    assert rows("SELECT action, kind, target FROM celeriac.audit ORDER BY id") == [
        ("create", "token", "grafana"), ("revoke", "token", "grafana"),
    ]  # fmt: skip


def test_a_schedule_is_added_edited_toggled_run_and_deleted(run: Run, rows: Rows) -> None:
    assert run("schedule", "add", "nightly", "0 3 * * *", "sync", "store_id=7", "--why", "asked to").exit_code == DONE
    assert run("schedule", "edit", "nightly", "--expression", "@every 6h", "--priority", 3).exit_code == DONE
    assert value(run("schedule", "toggle", "nightly", "--json"))["enabled"] is False
    assert value(run("schedule", "toggle", "nightly", "on", "--json"))["enabled"] is True
    (listed,) = value(run("schedule", "list", "--json"))
    assert listed["in_words"] == "every 6 hours"
    assert "every 6 hours" in run("schedule", "list").output
    assert (listed["name"], listed["cron_expression"], listed["priority"], listed["kwargs"]) == (
        "nightly", "@every 6h", 3, {"store_id": 7},
    )  # fmt: skip
    assert run("schedule", "run-now", "nightly").exit_code == DONE
    assert rows("SELECT role, kwargs, priority FROM worker_tasks") == [("sync", {"store_id": 7}, 3)]
    again = run("schedule", "run-now", "nightly").output
    assert (
        again
        == f"nightly: nothing was enqueued, its task {rows.one('SELECT task_id FROM worker_tasks')} is unfinished\n"
    )
    assert rows.one("SELECT after ->> 'ran' FROM celeriac.audit ORDER BY id DESC LIMIT 1") == "false"
    assert run("schedule", "delete", "nightly").output.strip() == "nightly is deleted"
    assert [action for (action,) in rows("SELECT action FROM celeriac.audit WHERE kind = 'schedule' ORDER BY id")] == [
        "create", "update", "toggle", "toggle", "run-now", "run-now", "delete",
    ]  # fmt: skip


def test_ticks_of_a_schedule_are_told_with_how_late_they_were_and_what_was_missed(
    run: Run, rows: Rows, put: Put
) -> None:
    run("schedule", "add", "nightly", "@daily", "sync", "store_id=7")
    assert "no tick made a task in 24 h" in run("schedule", "list").output
    rows("""INSERT INTO celeriac.ticks (schedule, due_at, done_at, task_id, left_out, why)
        SELECT s.id, at, at + i * interval '2 seconds', CASE WHEN i < 3 THEN 'nightly@' || i END,
            CASE WHEN i < 3 THEN 0 ELSE 4 END, CASE WHEN i = 3 THEN 'no beat ticked' END
        FROM celeriac.scheduled_jobs s, generate_series(1, 3) i, LATERAL (SELECT now() - i * interval '1 h' AS at) AS x
        WHERE s.name = 'nightly'""")
    rows("UPDATE celeriac.tasks SET task_id = 'nightly@1' WHERE id = :i", i=put().id)
    (listed,) = (one for one in value(run("schedule", "list", "--json")) if one["name"] == "nightly")
    assert (listed["missed_last_day"], listed["last_status"]) == (4, "pending")
    shown = run("schedule", "ticks", "nightly").output
    assert re.search(r"pending +-\n", shown)
    assert re.search(r"left out: 4 +no beat ticked\n", shown)
    assert "worst 4 s of 2 ticks in 24 h" in shown
    told = value(run("schedule", "ticks", "nightly", "--limit", 2, "--json"))
    assert [tick["status"] for tick in told["ticks"]] == ["pending", "not kept"]
    assert run("schedule", "ticks", "unheard of").exit_code == REFUSED


def test_a_schedule_that_could_not_run_is_refused(run: Run, rows: Rows) -> None:
    for wrong in (
        ("nightly", "99 3 * * *", "sync", "store_id=7"),
        ("nightly", "@daily", "nonesuch"),
        ("", "@daily", "sync", "store_id=7"),
        ("n" * 201, "@daily", "sync", "store_id=7"),
        ("nightly", "@daily", "sync", "colour=red"),
        ("nightly", "@daily", "sync", "store_id=7", "--timezone", "Mars/Olympus"),
    ):
        assert run("schedule", "add", *wrong).exit_code == REFUSED
    assert run("schedule", "toggle", "nightly").exit_code == REFUSED
    assert rows("SELECT FROM celeriac.scheduled_jobs") == []
    run("schedule", "add", "nightly", "@daily", "sync", "store_id=7")
    assert run("schedule", "add", "nightly", "@daily", "sync", "store_id=7").exit_code == REFUSED
    assert run("schedule", "edit", "nightly", "--expression", "never").exit_code == REFUSED
    rows("UPDATE celeriac.scheduled_jobs SET declared = '{}'")
    assert "stands in the beat config" in run("schedule", "delete", "nightly").stderr


def test_check_sweep_and_dispatch_answer_in_json(run: Run) -> None:
    assert value(run("check", "--json"))["problems"] == []
    assert value(run("sweep", "rescue", "prune", "--json")) == {"rescue": 0, "prune": 0}
    assert value(run("dispatch", "sync", "--json")) == {"role": "sync", "published": 0}


def test_openapi_prints_the_document(run: Run) -> None:
    pytest.importorskip("fastapi")
    assert json.loads(run("openapi").stdout)["openapi"].startswith("3.")


def test_every_command_takes_json_and_has_a_help() -> None:
    def commands(group: Any) -> list[Any]:
        found = group.commands.values()
        return [c for one in found for c in (commands(one) if hasattr(one, "commands") else [one])]

    for command in commands(main):
        assert "--json" in [option for p in command.params for option in p.opts], command.name
        assert command.help, command.name


def test_check_tells_of_settings_that_are_not_used_without_calling_them_problems(run: Run, app: Celeriac) -> None:
    app.conf.result_backend = "rpc://"
    said = "result_backend='rpc://' is not used: results are the tasks' rows in Postgres"
    assert value(run("check", "--json"))["notes"] == [said]
    assert run("check").stdout.startswith(f"note: {said}\n")


def test_check_notes_arguments_that_look_like_secrets_until_somebody_has_said_whether_they_are(
    run: Run, app: Celeriac
) -> None:
    @app.task(shared=False, role="reset")
    def reset(user: str, api_key: str, token: str) -> None: ...

    @app.task(shared=False, role="page_through", sensitive=())
    def page_through(page_token: str) -> None: ...

    @app.task(shared=False, role="login", sensitive=("password",))
    def login(password: str) -> None: ...

    @app.task(shared=False, role="misspelt", sensitive=("pasword",))
    def misspelt(password: str) -> None: ...

    told = "'api_key', 'token'"
    note = f"role 'reset': every surface shows its {told}: say sensitive=({told},) where that is secret, sensitive=()"
    answer = run("check", "--json")
    assert answer.exit_code == 0
    assert value(answer)["notes"] == [
        "role 'misspelt': sensitive names 'pasword', which is no parameter and hides only a key of that name within "
        "arguments; did you mean 'password'?",
        f"{note} where it is not",
    ]


def test_a_workflow_is_shown_listed_and_cancelled(run: Run, rows: Rows) -> None:
    rows("""INSERT INTO worker_tasks (task_id, role, workflow, barrier, place)
        SELECT 'part-' || i, 'sync', 'nightly', CAST(md5('body') AS uuid), i FROM generate_series(1, 3) i""")
    rows("""INSERT INTO worker_tasks (task_id, role, workflow, headers, waits_for) VALUES ('body', 'work', 'nightly',
        jsonb_build_object('canvas', jsonb_build_object('awaits', CAST(md5('body') AS uuid))), 'members')""")
    shown = run("workflow", "show", "part-2").stdout
    assert "workflow      nightly" in shown
    assert "done          0 of 4" in shown
    assert [" ".join(line.split()[:8]) for line in shown.splitlines()[-2:]] == [
        "sync 3 - - - - - work", "work 1 - - - - - -",
    ]  # fmt: skip
    assert value(run("workflow", "show", "nightly", "--json"))["counts"]["pending"] == 4
    (listed,) = value(run("workflow", "tasks", "nightly", "--role", "work", "--json"))["items"]
    assert (listed["task_id"], listed["waits_for"]) == ("body", "members")
    assert "more with --after" in run("workflow", "tasks", "nightly", "--limit", 2).stdout
    assert "cancel 4 tasks? [y/N]" in run("workflow", "cancel", "nightly", input="n\n").stderr
    cancelled = run("workflow", "cancel", "nightly", "--yes", "--why", "too late")
    assert cancelled.stdout.strip() == "4 cancelled, 0 that run were told to stop"
    assert value(run("workflow", "cancel", "nightly", "--json")) == {"cancelled": 0, "asked": 0}
    assert rows("SELECT DISTINCT status, error_message FROM worker_tasks") == [("cancelled", "too late")]
    assert run("workflow", "show", "nonesuch").exit_code == REFUSED


def test_alerts_are_listed_and_silenced(run: Run, rows: Rows) -> None:
    assert run("alerts").stdout == "nothing fires\n"
    rows("""INSERT INTO alerts (name, subject, value, threshold, says)
        VALUES ('queue_depth', 'sync', 7, 5, '7 tasks wait, more than 5')""")
    rows("INSERT INTO alerts_pending (name, subject) VALUES ('long_wait', 'sync')")
    assert "sync is silenced until" in run("alert", "silence", "queue_depth", "sync", "--why", "a flood").stdout
    told = run("alerts").stdout
    assert "queue_depth  sync     warn      7 tasks wait, more than 5" in told
    assert "pending   long_wait sync, since" in told
    assert f"silenced  queue_depth sync until {(str(rows.one('SELECT until FROM alert_silences')))[:10]}" in told
    assert f"by cli:{pwd.getpwuid(os.getuid()).pw_name}: a flood" in told
    assert "alert     queue_depth sync: 7 tasks wait, more than 5 (silenced)" in run("status").stdout
    found = value(run("alerts", "--json"))
    assert [len(found[name]) for name in ("alerts", "pending", "silences")] == [1, 1, 1]
    assert run("alert", "unsilence", "queue_depth", "sync").stdout == "queue_depth sync is told again\n"
    assert run("alert", "unsilence", "queue_depth", "sync").exit_code == REFUSED
    assert run("alert", "silence", "queue_depth", "--seconds", "0").exit_code == REFUSED
