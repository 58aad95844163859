"""What `v_worker_capacity` and the workers' heartbeats tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celeriac.insights.fleet.capacity import capacity, heartbeats
from celeriac.store.connections import Database
from tests.deploy import written
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, live_worker, registered
from tests.postgres.stages import WORKER, claimed, enqueued, running
from tests.processes import Rows


def of(database: Database, role: str = "work") -> dict[str, Any]:
    with database.statement() as connection:
        (row,) = capacity(connection, role)
    return row


def test_the_view_has_the_seeds_columns(rows: Rows) -> None:
    registered(rows, "work")
    columns = rows("""SELECT string_agg(column_name, ' ' ORDER BY ordinal_position) FROM information_schema.columns
        WHERE table_name = 'v_worker_capacity' GROUP BY table_schema ORDER BY table_schema""")
    seeds = (
        "role pending_tasks ready_tasks claimed_tasks running_tasks completed_last_hour failed_last_hour "
        "active_workers avg_duration_sec tasks_per_worker_hour estimated_hours_to_drain"
    )
    assert columns == [(seeds,), (seeds,)], "the engine's view, and the one under the name the documents give it"
    assert rows("SELECT * FROM v_worker_capacity") == [("work", 0, 0, 0, 0, 0, 0, 0, None, None, None)]


def test_tasks_are_counted_by_their_state(database: Database, rows: Rows) -> None:
    registered(rows, "work", "other")
    running(database, new_task(), new_task())
    running(database, new_task(lock_key="k"))
    enqueued(database, *(new_task() for _ in range(3)))
    claimed(database, n=2)
    enqueued(database, new_task(lock_key="k"), new_task(delay=600.0), new_task(delay=600.0), new_task("other"))
    rows("""WITH due AS (UPDATE celeriac.tasks SET scheduled_for = now() - interval '1 second'
            WHERE id = (SELECT min(id) FROM celeriac.later) RETURNING id, scheduled_for)
        UPDATE celeriac.later l SET due_at = due.scheduled_for FROM due WHERE l.id = due.id""")
    counts = of(database)
    assert (counts["pending_tasks"], counts["ready_tasks"]) == (4, 3)
    assert (counts["claimed_tasks"], counts["running_tasks"]) == (2, 3)
    assert of(database, "other")["pending_tasks"] == 1


def test_the_last_hour_is_an_hour(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    finished(rows, n=3, ago=59, seconds=2)
    finished(rows, n=5, ago=61, seconds=100)
    finished(rows, status="failed", n=2, seconds=50)
    finished(rows, status="cancelled")
    row = of(database)
    assert (row["completed_last_hour"], row["failed_last_hour"]) == (3, 2)
    assert row["avg_duration_sec"] == pytest.approx(2)
    assert row["tasks_per_worker_hour"] == pytest.approx(1800)


def test_the_seeds_example_of_three_workers(database: Database, rows: Rows) -> None:
    registered(rows, "work", queue="stores", window=2000)
    finished(rows, n=10, seconds=72)
    enqueued(database, *(new_task() for _ in range(500)))
    for n in range(3):
        live_worker(rows, f"w{n}", '["stores", "more"]')
    row = of(database)
    assert row["active_workers"] == 3
    assert row["workers_needed"] == {"for_1_hour": 10, "for_4_hours": 3, "for_8_hours": 2}
    assert row["estimated_hours_to_drain"] == pytest.approx(500 * 72 / 3600 / 3)


def test_a_workers_processes_work_side_by_side_as_far_as_the_window_goes(database: Database, rows: Rows) -> None:
    registered(rows, "work", window=2000)
    registered(rows, "narrow", window=3)
    for role in ("work", "narrow"):
        finished(rows, role, seconds=36)
    live_worker(rows, queues='["work", "narrow"]', concurrency=6)
    assert of(database)["tasks_per_worker_hour"] == pytest.approx(600)
    assert of(database, "narrow")["tasks_per_worker_hour"] == pytest.approx(300)


def test_only_workers_that_take_the_roles_work_now_count(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    live_worker(rows, "elsewhere", '["other"]')
    live_worker(rows, "draining", status="draining")
    live_worker(rows, "silent", ago=3)
    assert of(database)["active_workers"] == 0
    live_worker(rows)
    assert of(database)["active_workers"] == 1


def test_a_measured_run_time_is_better_than_the_time_a_ticket_took(database: Database, rows: Rows) -> None:
    registered(rows, "work")
    finished(rows, seconds=10)
    rows("INSERT INTO batchers (role, seconds_per_task) VALUES ('work', 0.5)")
    assert of(database)["avg_duration_sec"] == 0.5


# -- heartbeats --------------------------------------------------------------------------------------------------------

HEARTBEAT = written.of("docs/workers.md", "json")

RESOURCES = {
    "memory_mb": 256, "memory_total_mb": 512, "memory_rss_mb": 320, "memory_percent": 50, "cpu_user_ms": 12500,
    "cpu_system_ms": 3200, "cpu_percent": 45, "is_backing_off": False, "backoff_reason": None,
}  # fmt: skip


def reports(database: Database, worker_id: str | None = None) -> list[dict[str, Any]]:
    with database.statement() as connection:
        return heartbeats(connection, worker_id)


def test_a_heartbeat_is_the_seeds_document(database: Database, rows: Rows) -> None:
    ids = [task.id for n in range(3) for task in running(database, new_task())]
    rows("UPDATE worker_tasks SET worker_pid = id")
    live_worker(rows, WORKER, concurrency=3, resources=json.dumps(RESOURCES))
    (document,) = reports(database)
    assert document == {
        "worker_id": WORKER, "current_task_id": ids[0], "current_task_ids": ids, "active_task_count": 3,
        "max_concurrent_tasks": 3, "status": "active", "resources": RESOURCES,
    }  # fmt: skip
    assert list(document["resources"]) == list(RESOURCES)


def test_the_page_about_workers_shows_such_a_document(database: Database, rows: Rows) -> None:
    (block,) = HEARTBEAT
    shown = json.loads(block.text)
    for _ in shown["current_task_ids"]:
        running(database, new_task())
    rows("UPDATE worker_tasks SET worker_pid = id")
    resources = json.dumps(shown["resources"])
    live_worker(rows, WORKER, concurrency=shown["max_concurrent_tasks"], resources=resources)
    (document,) = reports(database)
    own = {name: shown[name] for name in ("worker_id", "current_task_id", "current_task_ids")}
    assert json.dumps(document | own) == json.dumps(shown)
    assert len(document["current_task_ids"]) == len(shown["current_task_ids"])


def test_an_idle_worker_has_no_current_task(database: Database, rows: Rows) -> None:
    live_worker(rows)
    (document,) = reports(database)
    assert (document["current_task_id"], document["current_task_ids"], document["active_task_count"]) == (None, [], 0)


def test_of_a_tickets_rows_one_a_process_is_current(database: Database, rows: Rows) -> None:
    first, *_ = running(database, *(new_task() for _ in range(5)))
    live_worker(rows, WORKER, concurrency=2)
    assert [d["current_task_ids"] for d in reports(database)] == [[first.id]]


def test_a_worker_that_is_its_only_process_runs_one(database: Database, rows: Rows) -> None:
    running(database, *(new_task() for _ in range(5)))
    rows("UPDATE worker_tasks SET worker_pid = 1")
    live_worker(rows, WORKER, concurrency=3)
    assert [d["active_task_count"] for d in reports(database)] == [1]


def test_only_live_workers_are_told_of(database: Database, rows: Rows) -> None:
    live_worker(rows, "stopped", status="stopped")
    live_worker(rows, "silent", ago=3)
    live_worker(rows, "draining", status="draining")
    live_worker(rows)
    assert [d["worker_id"] for d in reports(database)] == ["draining", "w"]
    assert [d["worker_id"] for d in reports(database, "w")] == ["w"]


def test_counting_stops_and_says_so(rows: Rows, database: Database) -> None:
    registered(rows, "work")
    enqueued(database, *(new_task() for _ in range(5)))

    def told(most: int) -> tuple[int, bool]:
        with database.statement() as connection:
            (row,) = capacity(connection, "work", most=most)
        return row["pending_tasks"], row["at_least"]

    assert [told(most) for most in (3, 5, 6)] == [(3, True), (5, True), (5, False)]
