"""The commands that see and steer roles, accounts and workers."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable

from celeriac.enqueue.rows import Receipt
from celeriac.store.connections import Database
from tests.postgres import stages
from tests.postgres.commands.results import DONE, REFUSED, USAGE, Run, value
from tests.postgres.conftest import new_task
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_roles_and_accounts_are_paused_and_resumed(run: Run, rows: Rows) -> None:
    assert run("roles", "pause", "sync", "--why", "flood").output.strip() == "sync is paused"
    for slip in (("accounts", "pause", "acme"), ("accounts", "set", "acme", "--cap", 3)):
        refused = run(*slip)
        assert (refused.exit_code, "had no task lately" in refused.stderr) == (REFUSED, True)
    assert run("accounts", "pause", "acme", "--create").exit_code == DONE
    assert value(run("accounts", "set", "acme", "--weight", 2, "--cap", 3, "--json"))["after"]["cap"] == 3
    assert rows("SELECT role FROM celeriac.roles WHERE paused") == [("sync",)]
    assert run("roles", "resume", "sync").exit_code == DONE
    assert rows("SELECT account, weight, cap, paused FROM celeriac.account_policies") == [("acme", 2.0, 3, True)]
    assert run("roles", "pause", "nonesuch").exit_code == REFUSED
    assert run("roles", "pause", "sync", "--for", 600).output.strip() == "sync is paused for 10 min"
    assert rows("SELECT paused, paused_until > now() FROM roles WHERE role = 'sync'") == [(True, True)]
    assert run("accounts", "pause", "acme", "--for", 600).exit_code == USAGE
    assert run("accounts", "set", "acme").exit_code == USAGE


def test_a_roles_limits_are_set_and_lifted(run: Run, rows: Rows) -> None:
    assert (
        run("roles", "limit", "sync", "--rate", "10/m", "--soft", "2.5").output.strip()
        == "sync: rate_limit=10/m, timeout=2.5"
    )
    assert run("roles", "limit", "sync", "--rate", "none").output.strip() == "sync: timeout=2.5"
    assert rows("SELECT role, rate_limit, timeout FROM celeriac.role_limits") == [("sync", None, 2.5)]
    for wrong in (["--rate", "often"], [], ["--soft", "soon"]):
        assert run("roles", "limit", "sync", *wrong).exit_code != DONE
    assert run("roles", "limit", "nonesuch", "--rate", "1").exit_code == REFUSED


def test_status_shows_what_waits_runs_is_late_and_is_paused(run: Run, rows: Rows, put: Put, database: Database) -> None:
    stages.running(database, new_task("busy"))
    put("busy", lock_key="k")
    put("busy", lock_key="k")
    rows("UPDATE worker_tasks SET scheduled_for = now() - interval '3 hours' WHERE lock_key = 'k'")
    for _ in range(2):
        rows("UPDATE worker_tasks SET waits_for = 'account' WHERE id = :id", id=put("busy", account="acme").id)
    run("schedules", "add", "nightly", "0 3 * * *", "sync", "store_id=1")
    rows("UPDATE celeriac.scheduled_jobs SET next_run_at = now() - interval '10 min'")
    rows(
        """INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency) VALUES (:w, 'host', 1, 8)""",
        w=stages.WORKER,
    )
    run("roles", "pause", "sync")
    run("accounts", "pause", "acme")
    shown = run("status").output
    assert [" ".join(line.split()) for line in shown.splitlines() if line.startswith(("busy", "sync"))] == [
        "busy 1 0 1 2 0 0 1 - - - 3 h -", "sync 0 0 0 0 0 0 0 - 8 - - paused",
    ]  # fmt: skip
    for line in ("1 workers, 8 slots, 1 busy", "late      nightly: 10 min", "paused    account acme"):
        assert line in shown
    now = value(run("status", "--json"))
    assert now["tasks"]["running"] == {"n": 1, "exact": True}
    assert {"busy", "sync"} <= {role["role"] for role in now["roles"]}
    assert value(run("workers", "list", "--json"))[0]["worker_id"] == stages.WORKER


def test_a_worker_is_told_to_end_and_it_is_audited(run: Run, rows: Rows) -> None:
    worker = (
        "INSERT INTO celeriac.workers (worker_id, hostname, pid, concurrency, status) VALUES (:w, 'host', 1, 8, :s)"
    )
    for name, status in (("node:7", "active"), ("gone", "stopped")):
        rows(worker, w=name, s=status)
    assert run("workers", "decommission", "node:7", "--why", "old").output.strip() == "node:7 is to end"
    again = value(run("workers", "decommission", "--json", "node:7"))
    assert (again["before"], again["after"]) == ({"status": "draining"}, {"status": "draining"})
    for refused, says in (("nobody", "there is no worker 'nobody'"), ("gone", "has stopped; nothing was changed")):
        result = run("workers", "decommission", refused)
        assert (result.exit_code, says in result.stderr, result.stderr.count("\n")) == (REFUSED, True, 1)
    assert {w["worker_id"]: w["status"] for w in value(run("workers", "list", "--json"))} == {
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
    assert "all are gone, the last was heard 10 min ago" in run("workers", "list").output
    me = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    audit = "SELECT by, action, kind, target, before ->> 'status', why FROM celeriac.audit ORDER BY id LIMIT 2"
    assert rows(audit) == [
        (me, "decommission", "worker", "node:7", "active", "old"),
        (me, "decommission", "worker", "node:7", "draining", None),
    ]


def test_status_shows_every_paused_account(run: Run, rows: Rows) -> None:
    rows("""INSERT INTO celeriac.account_policies (account, paused)
        SELECT 'account-' || lpad(i::text, 5, '0'), i = 1500 FROM generate_series(1, 1500) i""")
    assert value(run("status", "--json"))["paused_accounts"] == ["account-01500"]
