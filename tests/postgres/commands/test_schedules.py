"""The commands that add, change and run schedules, and tell of their ticks."""

from __future__ import annotations

import re
from collections.abc import Callable

from celeriac.enqueue.rows import Receipt
from tests.postgres.commands.results import DONE, REFUSED, Run, value
from tests.processes import Rows

Put = Callable[..., Receipt]


def test_a_schedule_is_added_edited_toggled_run_and_deleted(run: Run, rows: Rows) -> None:
    assert run("schedules", "add", "nightly", "0 3 * * *", "sync", "store_id=7", "--why", "asked to").exit_code == DONE
    assert run("schedules", "edit", "nightly", "--expression", "@every 6h", "--priority", 3).exit_code == DONE
    assert value(run("schedules", "toggle", "nightly", "--json"))["enabled"] is False
    assert value(run("schedules", "toggle", "nightly", "on", "--json"))["enabled"] is True
    (listed,) = value(run("schedules", "list", "--json"))
    assert listed["in_words"] == "every 6 hours"
    assert "every 6 hours" in run("schedules", "list").output
    assert (listed["name"], listed["cron_expression"], listed["priority"], listed["kwargs"]) == (
        "nightly", "@every 6h", 3, {"store_id": 7},
    )  # fmt: skip
    assert run("schedules", "run-now", "nightly").exit_code == DONE
    assert rows("SELECT role, kwargs, priority FROM worker_tasks") == [("sync", {"store_id": 7}, 3)]
    again = run("schedules", "run-now", "nightly").output
    assert (
        again
        == f"nightly: nothing was enqueued, its task {rows.one('SELECT task_id FROM worker_tasks')} is unfinished\n"
    )
    assert rows.one("SELECT after ->> 'ran' FROM celeriac.audit ORDER BY id DESC LIMIT 1") == "false"
    assert run("schedules", "delete", "nightly").output.strip() == "nightly is deleted"
    assert [action for (action,) in rows("SELECT action FROM celeriac.audit WHERE kind = 'schedule' ORDER BY id")] == [
        "create", "update", "toggle", "toggle", "run-now", "run-now", "delete",
    ]  # fmt: skip


def test_ticks_of_a_schedule_are_told_with_how_late_they_were_and_what_was_missed(
    run: Run, rows: Rows, put: Put
) -> None:
    run("schedules", "add", "nightly", "@daily", "sync", "store_id=7")
    assert "no tick made a task in 24 h" in run("schedules", "list").output
    rows("""INSERT INTO celeriac.ticks (schedule, due_at, done_at, task_id, left_out, why)
        SELECT s.id, at, at + i * interval '2 seconds', CASE WHEN i < 3 THEN 'nightly@' || i END,
            CASE WHEN i < 3 THEN 0 ELSE 4 END, CASE WHEN i = 3 THEN 'no beat ticked' END
        FROM celeriac.scheduled_jobs s, generate_series(1, 3) i, LATERAL (SELECT now() - i * interval '1 h' AS at) AS x
        WHERE s.name = 'nightly'""")
    rows("UPDATE celeriac.tasks SET task_id = 'nightly@1' WHERE id = :i", i=put().id)
    (listed,) = (one for one in value(run("schedules", "list", "--json")) if one["name"] == "nightly")
    assert (listed["missed_last_day"], listed["last_status"]) == (4, "pending")
    shown = run("schedules", "ticks", "nightly").output
    assert re.search(r"pending +-\n", shown)
    assert re.search(r"left out: 4 +no beat ticked\n", shown)
    assert "worst 4 s of 2 ticks in 24 h" in shown
    told = value(run("schedules", "ticks", "nightly", "--limit", 2, "--json"))
    assert [tick["status"] for tick in told["ticks"]] == ["pending", "not kept"]
    assert run("schedules", "ticks", "unheard of").exit_code == REFUSED


def test_a_schedule_that_could_not_run_is_refused(run: Run, rows: Rows) -> None:
    for wrong in (
        ("nightly", "99 3 * * *", "sync", "store_id=7"),
        ("nightly", "@daily", "nonesuch"),
        ("", "@daily", "sync", "store_id=7"),
        ("n" * 201, "@daily", "sync", "store_id=7"),
        ("nightly", "@daily", "sync", "colour=red"),
        ("nightly", "@daily", "sync", "store_id=7", "--timezone", "Mars/Olympus"),
    ):
        assert run("schedules", "add", *wrong).exit_code == REFUSED
    assert run("schedules", "toggle", "nightly").exit_code == REFUSED
    assert rows("SELECT FROM celeriac.scheduled_jobs") == []
    run("schedules", "add", "nightly", "@daily", "sync", "store_id=7")
    assert run("schedules", "add", "nightly", "@daily", "sync", "store_id=7").exit_code == REFUSED
    assert run("schedules", "edit", "nightly", "--expression", "never").exit_code == REFUSED
    rows("UPDATE celeriac.scheduled_jobs SET declared = '{}'")
    assert "stands in the beat config" in run("schedules", "delete", "nightly").stderr
