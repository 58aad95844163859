"""The commands that list by a filter, and change or write down all that it means."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from celeriac.enqueue.rows import Receipt
from celeriac.insights.tasks import lists
from tests.postgres.commands.results import DONE, REFUSED, USAGE, Run, value
from tests.postgres.finished import fail
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_list_finds_by_age_error_and_key_in_every_state(run: Run, rows: Rows, put: Put) -> None:
    fail(rows, 1, "HTTPError: Timed OUT")
    old, keyed = put(), put(lock_key="k")
    retried = put()
    rows("UPDATE celeriac.tasks SET error_message = 'timed out once' WHERE id = :i", i=retried.id)
    rows("UPDATE celeriac.tasks SET created_at = now() - interval '1 day' WHERE id = :i", i=old.id)

    def listed(*options: object) -> list[str]:
        return [item["status"] for item in value(run("tasks", "list", *options, "--json"))["items"]]

    assert listed("--error", "timed out") == ["pending", "failed"]
    assert len(listed("--newer-than", 3600)) == 3
    assert listed("--lock-key", "k") == ["pending"]
    run("tasks", "cancel", keyed.id)
    assert listed("--lock-key", "k") == ["cancelled"]
    assert run("tasks", "list", "--newer-than", "nan").exit_code == REFUSED


def test_list_and_bulks_are_narrowed_by_priority_and_schedule(run: Run, rows: Rows, put: Put) -> None:
    low, tick = put(priority=-5), put(priority=60)
    rows("UPDATE celeriac.tasks SET task_id = 'nightly@2031-01-01T00:00:00Z' WHERE id = :i", i=tick.id)
    for options, meant in (
        (("--priority", "50.."), tick), (("--priority=-9..10",), low), (("--schedule", "nightly"), tick),
    ):  # fmt: skip
        assert [item["id"] for item in value(run("tasks", "list", *options, "--json"))["items"]] == [meant.id], options
        assert run("tasks", "prioritise", 7, *options, "--preview").stdout.strip() == "1 tasks", options
    bulk = value(run("tasks", "prioritise", 70, "--priority", "50..", "--later", "--yes", "--json"))
    assert value(run("bulks", "work", "--json")) == {"moved": 1}
    assert (bulk["done"], bulk["filter"]["priority"]) == (0, "50..")
    assert rows("SELECT id, priority FROM worker_tasks ORDER BY id") == [(low.id, -5), (tick.id, 70)]
    assert run("tasks", "list", "--priority", "high").exit_code == REFUSED


def test_list_looks_on_where_few_are_meant(run: Run, rows: Rows, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKS_AT", 50)
    wanted = put(account="rare").id
    rows("INSERT INTO worker_tasks (task_id, role) SELECT gen_random_uuid(), 'work' FROM generate_series(1, 300)")
    page = value(run("tasks", "list", "--account", "rare", "--limit", 1, "--json"))
    assert [item["id"] for item in page["items"]] == [wanted]


def test_what_waits_for_its_time_is_due_now(run: Run, rows: Rows, put: Put) -> None:
    planned, ready = put(delay=3_600.0), put()
    put("other", delay=3_600.0)
    assert run("tasks", "hasten", planned.id, "--why", "asked").stdout.strip() == "1 changed, 0 not"
    assert run("tasks", "hasten", ready.id).exit_code == REFUSED
    assert run("tasks", "hasten", "--role", "other", "--yes").stdout.strip() == "1 changed, 0 not"
    assert rows("SELECT count(*) FROM celeriac.audit WHERE action = 'hasten'") == [(2,)]
    assert rows("SELECT id FROM worker_tasks WHERE scheduled_for > now()") == []


def test_a_bulk_says_how_many_are_meant_in_all(run: Run, rows: Rows, put: Put) -> None:
    for _ in range(5):
        put(account="acme")
    assert run("tasks", "cancel", "--account", "acme", "--preview").stdout.strip() == "5 tasks"
    assert run("tasks", "cancel", "--account", "acme", "--most", 2, "--preview").stdout.strip() == "2 of 5 tasks"
    assert "cancel 2 of 5 tasks? [y/N]" in run("tasks", "cancel", "--account", "acme", "--most", 2, input="n\n").stderr
    done = run("tasks", "cancel", "--account", "acme", "--most", 2, "--yes").stdout
    assert done.strip() == "2 changed, 0 not; 3 more are meant"
    assert run("tasks", "prioritise", 7, "--account", "acme", "--yes").stdout.strip() == "3 changed, 0 not"


EVIL = "a\x1b]0;title\x07\u202eb\x9bc\x7f"


def test_what_is_others_text_never_orders_the_terminal(run: Run, rows: Rows, put: Put) -> None:
    task, _ = put(account=EVIL, lock_key=EVIL), put(account=EVIL, lock_key=EVIL)
    fail(rows, 1, f"HTTPError: {EVIL}")
    raw = set(EVIL) - set("a]0;title") - {"b", "c"}
    for command in (
        ("tasks", "list"), ("tasks", "show", task.id), ("failures", "list"), ("accounts", "list"), ("locks", "list"),
        ("locks", "show", EVIL), ("tasks", "list", "--json"),
        ("failures", "list", "--json"), ("accounts", "pause", EVIL), ("status",), ("tasks", "show", EVIL), ("audit",),
    ):  # fmt: skip
        told = run(*command)
        assert not raw & set(told.output), command
        if "--json" not in command and command not in [("status",), ("audit",)]:
            assert "title" in told.output, command
    items = value(run("tasks", "list", "--status", "pending", "--json"))["items"]
    assert {item["account"] for item in items} == {EVIL}, "programs get what there is"


def test_a_bulk_is_asked_for_shown_worked_on_and_stopped(run: Run, rows: Rows) -> None:
    fail(rows, 3, "boom")
    assert "retry 3 tasks? [y/N]" in run("tasks", "retry", "--role", "work", "--later", input="n\n").output
    told = value(run("tasks", "retry", "--role", "work", "--later", "--yes", "--why", "mended", "--json"))
    assert value(run("bulks", "work", "--json")) == {"moved": 3}
    done = value(run("bulks", "show", told["id"], "--json"))
    assert (done["state"], done["asked"], done["done"], done["why"]) == ("done", 3, 3, "mended")
    left = value(run("tasks", "cancel", "--role", "work", "--later", "--yes", "--json"))
    assert (left["state"], left["asked"]) == ("gathering", 0)
    assert value(run("bulks", "work", "--json")) == {"moved": 3}
    assert value(run("bulks", "show", left["id"], "--json"))["state"] == "done"
    assert [row["id"] for row in value(run("bulks", "list", "--json"))] == [left["id"], done["id"]]
    assert run("bulks", "stop", left["id"]).exit_code == REFUSED
    again = value(run("tasks", "prioritise", 7, "--role", "work", "--later", "--yes", "--json"))
    assert run("bulks", "stop", again["id"], "--why", "wrong").exit_code == DONE
    for slip in (["--yes"], [1], ["--role", "work", "--most", 2], ["--role", "work", "--go-on"]):
        assert run("tasks", "retry", "--later", *slip).exit_code == USAGE, "a bulk of everything, or of what none does"


def test_a_list_is_a_file_of_all_that_are_meant(run: Run, rows: Rows) -> None:
    fail(rows, 30, "=boom")
    fail(rows, 2, "boom", role="other")
    whole = run("tasks", "list", "--role", "work", "--format", "csv").output.splitlines()
    assert (len(whole), whole[0].split(",")[:3]) == (31, ['"id"', '"task_id"', '"role"'])
    assert all("'=boom" in line for line in whole[1:])
    some = run("tasks", "list", "--role", "work", "--format", "ndjson", "--limit", 3).output.splitlines()
    assert [json.loads(line).get("error_message") for line in some] == ["=boom"] * 3 + [None]
    assert "the newest 3; there are more" in some[-1]
    assert run("tasks", "list", "--format", "csv", "--offset", 1).exit_code == USAGE
    assert run("tasks", "list", "--format", "csv", "--limit", 10**6).exit_code == REFUSED
