"""The commands that tell operators of failures, accounts, locks, workers and figures."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from celeriac import Celeriac
from celeriac.cli import output
from celeriac.enqueue.rows import Receipt
from celeriac.errors import ConfigurationError
from celeriac.repair import sweep
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.commands.results import DONE, REFUSED, USAGE, Run, value
from tests.postgres.commands.workers import work
from tests.postgres.conftest import new_task
from tests.postgres.finished import fail, finished, registered
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_all_tasks_of_a_group_of_failures_are_listed(run: Run, rows: Rows) -> None:
    fail(rows, 3, "HTTPError: 502 of 'a'")
    fail(rows, 2, "KeyError: 'b'")
    (group, _) = value(run("failures", "list", "--json"))["groups"]
    assert [one["id"] for one in value(run("failures", "tasks", group["fingerprint"], "--json"))["items"]] == [3, 2, 1]
    first = run("failures", "tasks", group["fingerprint"], "--limit", 2).output.splitlines()
    assert (len(first), first[-1]) == (4, "there may be more with --before 2")
    assert run("failures", "tasks", "none").exit_code == REFUSED


def test_failures_are_shown_in_groups_and_a_group_is_retried_whole(run: Run, rows: Rows) -> None:
    fail(rows, 3, "HTTPError: 502 of 'a'")
    fail(rows, 2, "KeyError: 'b'")
    shown = run("failures", "list").output.splitlines()
    assert ["HTTPError: 502 of 'a'" in shown[1], "KeyError" in shown[2]] == [True, True]
    assert shown[-1] == "5 failures looked at, the newest"
    assert re.findall(r"first seen +last seen", shown[0])
    (first,) = rows("SELECT min(completed_at) FROM worker_tasks WHERE error_message LIKE 'HTTP%'")[0]
    assert output.cell(first) in shown[1]
    http = value(run("failures", "list", "--role", "work", "--since", 3600, "--json"))["groups"][0]["fingerprint"]
    assert run("tasks", "retry", "--failure", http, "--preview").output.strip() == "3 tasks"
    assert "retry 3 tasks? [y/N]" in run("tasks", "retry", "--failure", http, input="n\n").stderr
    assert run("tasks", "retry", "--failure", http, "--yes", "--why", "mended").stdout.strip() == "3 changed, 0 not"
    assert rows("SELECT status, count(*) FROM worker_tasks GROUP BY status ORDER BY status") == [
        ("failed", 2), ("pending", 3),
    ]  # fmt: skip
    assert run("tasks", "retry", "--failure", "nonesuch").exit_code == REFUSED
    assert run("tasks", "retry", "--failure", http, "--account", "a").exit_code == USAGE


def test_a_group_of_failures_is_retried_no_further_back_than_was_confirmed(run: Run, rows: Rows) -> None:
    fail(rows, 3, "KeyError: 'b'")
    (group,) = value(run("failures", "list", "--json"))["groups"]
    narrowed = ("tasks", "retry", "--failure", group["fingerprint"], "--newer-than", 3600, "--yes")
    assert run(*narrowed, "--later").exit_code == USAGE
    assert rows("SELECT FROM celeriac.bulk_actions") == []
    assert run(*narrowed).stdout.strip() == "3 changed, 0 not"
    assert rows("SELECT after -> 'filter' FROM celeriac.audit WHERE action = 'retry'") == [
        ({"fingerprint": group["fingerprint"], "newer_than": 3600},)
    ]


def test_a_group_of_failures_is_marked_with_a_note(run: Run, rows: Rows) -> None:
    fail(rows, 2, "KeyError: 'b'")
    for says in ("KeyError: 'c'", "ValueError: no"):
        rows(
            """INSERT INTO worker_tasks (task_id, role, waits_for, scheduled_for)
            VALUES (:says, 'work', 'time', now() + interval '1 hour')""", says=says,
        )  # fmt: skip
        rows("UPDATE tasks SET error_message = :says, retry_count = 1 WHERE task_id = :says", says=says)
    (group,) = value(run("failures", "list", "--json"))["groups"]
    assert (group["count"], group["retrying"]) == (2, 1)
    assert run("failures", "mark", group["fingerprint"], "known", "--note", "see 7").stdout.strip().endswith("is known")
    assert value(run("failures", "list", "--state", "known", "--json"))["groups"][0]["mark"]["note"] == "see 7"
    assert "known" in run("failures", "list").output.splitlines()[1]
    assert value(run("failures", "list", "--state", "open", "--json"))["groups"] == []
    assert rows("SELECT action, kind, target, why FROM audit") == [("mark", "failure", group["fingerprint"], "see 7")]
    assert run("failures", "mark", "0123456789ab", "known").exit_code == REFUSED


def test_top_shows_accounts_beside_their_fair_share(run: Run, put: Put, rows: Rows) -> None:
    for account in ("a", "a", "b"):
        put(account=account)
    rows("INSERT INTO batchers (role, cursor) VALUES ('work', 'b')")
    assert run("accounts", "list", "work").output.splitlines()[-1] == "the next pass begins after 'b'"
    assert value(run("accounts", "list", "work", "--json"))["cursor"] == "b"
    rows("DELETE FROM batchers")
    lines = [line.split() for line in run("accounts", "list", "work").output.splitlines()]
    assert [line[:2] for line in lines] == [["account", "waiting"], ["a", "2"], ["b", "1"]]
    assert {share["account"] for share in value(run("accounts", "list", "--json"))["accounts"]} == {"a", "b"}
    assert "there are more accounts" in run("accounts", "list", "--limit", 1).output
    whole = value(run("accounts", "show", "a", "--json"))
    assert [(one["role"], one["ready"]["n"], len(whole["oldest"])) for one in whole["roles"]] == [("work", 2, 2)]
    lines = run("accounts", "show", "a").output.splitlines()
    assert [line for line in lines if line.endswith(":")] == [
        "What it has of each role:", "What it holds:", "What it has that is due, the oldest first:",
    ]  # fmt: skip


def test_top_of_an_account_tells_what_passes_gave_it_beside_its_fair_share(
    run: Run, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        rows("""INSERT INTO passes (role, by, free, claimants, given)
            VALUES ('work', 'beat', 12, '[{"account": "a", "waiting": 9}, {"account": "b", "waiting": 9}]',
                '{"a": 2, "b": 10}')""")
    assert run("accounts", "show", "a").output.splitlines()[-1] == (
        "Passes gave it 6 slots within an hour; 18.0 would be fair.")  # fmt: skip
    received = value(run("accounts", "show", "a", "--json"))["received"]
    assert (received["slots"], received["fair"], received["is_all"], len(received["steps"])) == (6, 18.0, True, 12)
    monkeypatch.setattr("celeriac.insights.fairness.received.PASSES", 2)
    assert "4 slots within an hour, of the newest passes alone" in run("accounts", "show", "a").output


def test_waits_shows_why_a_roles_tasks_wait(run: Run, rows: Rows, put: Put) -> None:
    registered(rows, "work")
    work(rows, queues='["work"]')
    for delay in (0.0, 0.0, 60.0):
        put(delay=delay)
    first, second = run("roles", "waits", "work").output.splitlines()
    assert (first.split()[:4], second.split()) == (["2", "next", "in", "line:"], ["1", "not", "due", "yet"])
    assert ", at " in first
    assert [one["reason"] for one in value(run("roles", "waits", "work", "--json"))] == ["runnable", "later"]
    assert run("roles", "waits", "no_such_role").exit_code == REFUSED


def test_unique_keys_shows_who_has_them(run: Run, put: Put) -> None:
    for key in ("b", "a"):
        put(unique_key=key)
    (_, first, _), more = (
        run("locks", "unique-keys", "work").output.splitlines(),
        run("locks", "unique-keys", "--limit", 1).output,
    )
    assert first.split()[:2] == ["work", "a"]
    assert more.splitlines()[-1] == "there may be more with --limit"
    assert [one["unique_key"] for one in value(run("locks", "unique-keys", "--json"))] == ["a", "b"]


def test_locks_shows_the_holder_and_its_queue(run: Run, rows: Rows, put: Put, database: Database) -> None:
    stages.running(database, new_task(lock_key="k"))
    behind = [put(lock_key="k").id for _ in range(2)]
    rows("UPDATE celeriac.tickets SET heartbeat_at = now() - interval '1 hour'")
    assert "60 min, stale" in run("locks", "list").output
    one = value(run("locks", "show", "k", "--json"))
    assert (one["lock"]["status"], [waiting["id"] for waiting in one["queue"]]) == ("running", behind)
    assert run("locks", "show", "k", "--limit", 1).output.splitlines()[-1] == "1 more with --limit"


def test_capacity_and_the_audit_trail_are_told(run: Run, rows: Rows, put: Put) -> None:
    rows("INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{}')")
    task = put().id
    run("tasks", "cancel", task, "--why", "sold")
    put()
    (figures,) = value(run("roles", "capacity", "work", "--json"))
    assert (figures["pending_tasks"], figures["workers_needed"]["for_1_hour"]) == (1, None)
    assert run("roles", "capacity").output.splitlines()[-1].split()[:2] == ["work", "1"]
    assert run("roles", "capacity", "nonesuch").exit_code == REFUSED
    (entry,) = value(run("audit", "--kind", "task", "--target", task, "--json"))
    assert (entry["action"], entry["by"], entry["why"]) == ("cancel", f"cli:{getpass.getuser()}", "sold")
    assert "sold" in run("audit").output
    assert value(run("audit", "--action", "cancel", "--newer-than", 60, "--json")) == [entry]
    assert entry["via"] == "command line"
    assert value(run("audit", "--by", "nobody", "--json")) == []
    run("roles", "pause", "work")
    assert "there may be more with --before" in run("audit", "--newer-than", 60, "--limit", 1).output


def test_metrics_of_the_last_hour_are_told(run: Run, rows: Rows) -> None:
    registered(rows, "work")
    finished(rows, n=9, seconds=2)
    finished(rows, status="failed", seconds=2)
    (figures,) = value(run("roles", "metrics", "work", "--json"))
    assert (figures["success_rate"], figures["retry_rate"]) == (pytest.approx(0.9), 0)
    line = run("roles", "metrics").output.splitlines()[-1]
    assert line.split("  ")[0] == "work"
    assert ("90 %" in line, "2.0" in line) == (True, True)
    assert run("roles", "metrics", "nonesuch").exit_code == REFUSED


def test_the_state_that_the_last_review_left_is_told(run: Run, rows: Rows, app: Celeriac) -> None:
    registered(rows, "work")
    assert run("roles", "reviews", "work").exit_code == REFUSED
    sweep(app, "review")
    (state,) = value(run("roles", "reviews", "work", "--json"))
    assert (state["state"], state["reviewed_by"], state["found"]["ready"]) == ("reviewed", app.process_name, 0)
    assert run("roles", "reviews").output.splitlines()[-1].split()[:2] == ["work", "reviewed"]


def test_workers_tell_memory_cpu_and_why_they_back_off(run: Run, rows: Rows) -> None:
    said = '{"memory_percent": 91.4, "cpu_percent": 12.0, "is_backing_off": true, "backoff_reason": "memory"}'
    work(rows, resources=said)
    assert run("workers", "list").output.splitlines()[1].split()[-4:] == ["91%", "12%", "memory", "[]"]
    rows('UPDATE celeriac.workers SET resources = \'{"memory_percent": "much"}\'')
    assert run("workers", "list").exit_code == DONE


def test_workers_tell_their_release_and_what_they_did_and_one_its_hour(run: Run, rows: Rows) -> None:
    work(rows)
    rows("UPDATE workers SET version = '0.1.0'")
    registered(rows, "work")
    finished(rows, "work", n=3)
    assert run("workers", "list").output.splitlines()[1].split()[:4] == ["w", "host", "1", "0.1.0"]
    (told,) = value(run("workers", "list", "--json"))
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
    assert (now["redis"], [beat["beat_id"] for beat in now["beats"]]) == ("answers", ["host:1"])
    monkeypatch.setattr(app.publisher, "answers", Mock(side_effect=ConfigurationError("no such Redis")))
    assert "redis     does not answer" in run("status").output


def test_a_pause_says_what_waits(run: Run, rows: Rows, put: Put) -> None:
    rows("INSERT INTO celeriac.roles (role, definition) VALUES ('work', '{}')")
    put(account="acme")
    put(account="acme")
    assert run("roles", "pause", "work").stdout.strip() == "work is paused; 2 of its tasks wait"
    assert run("accounts", "pause", "acme").stdout.strip() == "acme is paused; 2 of its tasks wait"
