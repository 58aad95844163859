"""The commands that enqueue, show, list and change tasks, each on a database of its own."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

from celeriac.enqueue.rows import Receipt
from celeriac.store.connections import Database
from tests.postgres.commands.results import DONE, REFUSED, USAGE, Run, value
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_enqueue_takes_arguments_by_name_and_tells_what_became_of_them(run: Run, rows: Rows) -> None:
    new = value(run("tasks", "enqueue", "sync", "store_id=7", "note=hello there", "--priority", 5, "--json"))
    assert new["is_new"] is True
    assert rows("SELECT id, kwargs, priority FROM worker_tasks") == [
        (new["id"], {"store_id": 7, "note": "hello there"}, 5)
    ]
    again = value(run("tasks", "enqueue", "sync", "store_id=7", "--json"))
    assert (again["id"], again["is_new"]) == (new["id"], False)
    for refused, says in (
        (("sync", "store_id=1", "colour=1"), "unexpected keyword argument 'colour'"),
        (("nonesuch",), "no role 'nonesuch'"),
    ):
        result = run("tasks", "enqueue", *refused)
        assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (REFUSED, True, 1)
    assert run("tasks", "enqueue", "sync", "store_id").exit_code == USAGE
    assert run("tasks", "enqueue", "sync", "store_id=1", "store_id=2").exit_code == USAGE


def test_many_lines_are_enqueued_with_progress(run: Run, rows: Rows, tmp_path: Path) -> None:
    file = tmp_path / "calls"
    file.write_text("".join(f'{{"store_id": {n % 5}}}\n' for n in range(12)))
    done = run("tasks", "enqueue", "sync", "--from", file, "--json")
    assert value(done) == {"enqueued": 5, "known": 7}
    assert run("tasks", "enqueue", "sync", "--from", "-", input='{"store_id": 99}\n').stdout.startswith("1 enqueued")
    assert rows.one("SELECT count(*) FROM worker_tasks") == 6
    for more in ("store_id=7", "--task-id=one"):
        assert run("tasks", "enqueue", "sync", more, "--from", file).exit_code == USAGE, "of a single task"
    bad = run("tasks", "enqueue", "sync", "--from", "-", input='{"store_id": 100}\nnonsense\n')
    assert bad.exit_code == REFUSED
    assert "line 2 is no JSON object" in bad.stderr


def test_show_tells_a_task_by_either_id_and_why_it_waits(run: Run, put: Put, rows: Rows) -> None:
    rows("INSERT INTO roles (role, definition) VALUES ('work', '{}')")
    leader, task = put(lock_key="k"), put(lock_key="k")
    assert f"task {leader.id} (work) is pending and has its lock 'k'; 0 ahead" in run("tasks", "show", task.id).output
    assert value(run("tasks", "show", task.task_id, "--json"))["task"]["id"] == task.id
    nothing = run("tasks", "show", "nonesuch")
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
    listed = value(run("tasks", "list", "--status", "queued", "--account", "a0", "--limit", 2, "--json"))
    assert [item["id"] for item in listed["items"]] == [ids[4], ids[2]]
    more = value(run("tasks", "list", "--status", "queued", "--account", "a0", "--after", listed["next"], "--json"))
    assert [item["id"] for item in more["items"]] == [ids[0]]
    assert len(value(run("tasks", "list", "--status", "delayed", "--json"))["items"]) == 1
    assert f"more with --after '{ids[3]}'" in run("tasks", "list", "--limit", 2, "--offset", 1).output
    assert run("tasks", "list", "--status", "nonsense").exit_code == USAGE
    assert run("tasks", "list", "--arg", "no value").exit_code == USAGE
    kwargs = value(run("tasks", "show", str(ids[3]), "--json"))["task"]["kwargs"]
    called = [given for name, said in kwargs.items() for given in ("--arg", f"{name}={json.dumps(said)}")]
    assert ids[3] in [item["id"] for item in value(run("tasks", "list", *called, "--json"))["items"]]
    assert value(run("tasks", "list", *called, "--arg", "nothing=1", "--json"))["items"] == []
    assert run("tasks", "list", "--limit", 0).exit_code == REFUSED


def test_retry_cancel_and_prioritise_change_tasks_named_or_meant(run: Run, rows: Rows, put: Put) -> None:
    ids = [put(account="acme").id for _ in range(3)]
    assert run("tasks", "prioritise", 9, *ids[:2]).stdout.strip() == "2 changed, 0 not"
    assert run("tasks", "cancel", "--account", "acme", "--preview").output.strip() == "3 tasks"
    assert "cancel 3 tasks? [y/N]" in run("tasks", "cancel", "--account", "acme", input="n\n").stderr
    assert rows("SELECT DISTINCT status FROM worker_tasks") == [("pending",)]
    assert run("tasks", "retry", "--older-than", 0, "--preview").output.strip() == "0 tasks", "none can be retried"
    assert run("tasks", "cancel", "--account", "acme", "--yes", "--why", "a flood").exit_code == DONE
    done = run("tasks", "retry", ids[0], ids[1], "--json")
    assert [change["target"] for change in value(done)["changed"]] == [str(i) for i in ids[:2]]
    assert rows("SELECT status, priority FROM worker_tasks ORDER BY id") == [
        ("pending", 9), ("pending", 9), ("cancelled", 0),
    ]  # fmt: skip
    me = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    assert rows("SELECT action, count(*), min(by), max(why) FROM celeriac.audit GROUP BY action ORDER BY action") == [
        ("cancel", 1, me, "a flood"), ("priority", 2, me, None), ("retry", 2, me, None),
    ]  # fmt: skip


def test_what_the_life_of_a_task_forbids_is_refused_with_status_3(run: Run, put: Put) -> None:
    task = put().id
    refused = run("tasks", "retry", task)
    assert refused.exit_code == REFUSED
    assert "the task is pending: only what failed or was cancelled can be retried" in refused.stderr
    assert run("tasks", "cancel", 4711).exit_code == REFUSED
    assert run("tasks", "cancel").exit_code == USAGE
    assert run("tasks", "cancel", task, "--role", "work").exit_code == USAGE


def test_a_task_that_waits_has_other_arguments(run: Run, rows: Rows) -> None:
    run("tasks", "enqueue", "sync", "store_id=7")
    task = rows.one("SELECT id FROM tasks")
    assert run("tasks", "edit", task, "note=8").output.strip() == f"{task} is called with another note"
    assert rows("SELECT kwargs FROM tasks") == [({"store_id": 7, "note": 8},)]
    assert "unique_key would be another" in run("tasks", "edit", task, "store_id=8").stderr
    assert run("tasks", "edit", task, "nonesuch=8").exit_code == REFUSED
    assert run("tasks", "edit", task).exit_code == USAGE


def test_what_a_handler_wrote_to_its_log_is_told(run: Run, rows: Rows, put: Put) -> None:
    task = put().id
    rows("INSERT INTO task_logs (task, attempt, level, line) VALUES (:id, 2, 'WARNING', 'page 7 of 12')", id=task)
    assert "2        WARNING  page 7 of 12" in run("tasks", "log", task).output
    assert value(run("tasks", "log", task, "--json"))[0]["line"] == "page 7 of 12"
    assert run("tasks", "log", 4711).exit_code == REFUSED


def test_a_retry_goes_on_from_where_the_task_stopped(run: Run, rows: Rows) -> None:
    rows("""INSERT INTO worker_tasks (id, task_id, role, status, completed_at, retry_count)
        VALUES (5000, 'stopped', 'sync', 'failed', now(), 3)""")
    assert run("tasks", "retry", "stopped", "--go-on").exit_code == DONE
    assert rows("SELECT status, retry_count FROM worker_tasks") == [("pending", 3)]


def test_a_workflow_is_shown_listed_and_cancelled(run: Run, rows: Rows) -> None:
    rows("""INSERT INTO worker_tasks (task_id, role, workflow, barrier, place)
        SELECT 'part-' || i, 'sync', 'nightly', CAST(md5('body') AS uuid), i FROM generate_series(1, 3) i""")
    rows("""INSERT INTO worker_tasks (task_id, role, workflow, headers, waits_for) VALUES ('body', 'work', 'nightly',
        jsonb_build_object('canvas', jsonb_build_object('awaits', CAST(md5('body') AS uuid))), 'members')""")
    shown = run("workflows", "show", "part-2").stdout
    assert "workflow      nightly" in shown
    assert "done          0 of 4" in shown
    assert [" ".join(line.split()[:8]) for line in shown.splitlines()[-2:]] == [
        "sync 3 - - - - - work", "work 1 - - - - - -",
    ]  # fmt: skip
    assert value(run("workflows", "show", "nightly", "--json"))["counts"]["pending"] == 4
    (listed,) = value(run("workflows", "tasks", "nightly", "--role", "work", "--json"))["items"]
    assert (listed["task_id"], listed["waits_for"]) == ("body", "members")
    assert "more with --after" in run("workflows", "tasks", "nightly", "--limit", 2).stdout
    assert "cancel 4 tasks? [y/N]" in run("workflows", "cancel", "nightly", input="n\n").stderr
    cancelled = run("workflows", "cancel", "nightly", "--yes", "--why", "too late")
    assert cancelled.stdout.strip() == "4 cancelled, 0 that run were told to stop"
    assert value(run("workflows", "cancel", "nightly", "--json")) == {"cancelled": 0, "asked": 0}
    assert rows("SELECT DISTINCT status, error_message FROM worker_tasks") == [("cancelled", "too late")]
    assert run("workflows", "show", "nonesuch").exit_code == REFUSED
