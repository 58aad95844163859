"""The database refuses states that cannot be, whatever code writes them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import CheckConstraint, Connection, text
from sqlalchemy.exc import IntegrityError

from celeriac.store import tables
from celeriac.store.connections import Database

TOKEN = "00000000-0000-4000-8000-000000000001"
NOW = "2026-01-01"

TASK = {"role": "work", "status": "pending"}
CLAIMED = TASK | {"status": "claimed", "token": TOKEN, "claimed_at": NOW}
RUNNING = CLAIMED | {"status": "running", "worker_id": "w", "started_at": NOW, "last_heartbeat_at": NOW}
COMPLETED = TASK | {"status": "completed", "completed_at": NOW}
POSSIBLE = [TASK, CLAIMED, RUNNING, COMPLETED]

KEYED = {"lock_key": "k"}
UNIQUE = {"unique_key": "u"}
BEHIND = TASK | KEYED | {"waits_for": "lock"}

#: By what refuses it: rows of which the last cannot be beside the others.
IMPOSSIBLE_TASKS: list[tuple[str, list[dict[str, Any]]]] = [
    ("worker_tasks_status_known", [TASK | {"status": "waiting"}]),
    ("worker_tasks_only_pending_waits", [TASK | {"waits_for": "godot"}]),
    ("worker_tasks_only_pending_waits", [CLAIMED | {"waits_for": "time"}]),
    ("worker_tasks_only_pending_waits", [COMPLETED | {"waits_for": "time"}]),
    ("worker_tasks_only_pending_waits", [TASK | {"waits_for": "lock"}]),
    ("worker_tasks_held_as_status_says", [TASK | {"token": TOKEN}]),
    ("worker_tasks_held_as_status_says", [CLAIMED | {"token": None}]),
    ("worker_tasks_held_as_status_says", [CLAIMED | {"claimed_at": None}]),
    ("worker_tasks_held_as_status_says", [RUNNING | {"token": None}]),
    ("worker_tasks_held_as_status_says", [RUNNING | {"claimed_at": None}]),
    ("worker_tasks_held_as_status_says", [RUNNING | {"worker_id": None}]),
    ("worker_tasks_held_as_status_says", [RUNNING | {"started_at": None}]),
    ("worker_tasks_held_as_status_says", [RUNNING | {"last_heartbeat_at": None}]),
    ("worker_tasks_finished_has_time", [COMPLETED | {"completed_at": None}]),
    ("worker_tasks_finished_has_time", [COMPLETED | {"status": "failed", "completed_at": None}]),
    ("worker_tasks_finished_has_time", [COMPLETED | {"status": "cancelled", "completed_at": None}]),
    ("worker_tasks_finished_has_time", [TASK | {"completed_at": NOW}]),
    ("worker_tasks_counts_positive", [TASK | {"retry_count": -1}]),
    ("worker_tasks_counts_positive", [TASK | {"tries": -1}]),
    ("worker_tasks_counts_positive", [TASK | {"losses": -1}]),
    ("worker_tasks_task_id", [COMPLETED | {"task_id": "t"}, TASK | {"task_id": "t"}]),
    *(("worker_tasks_one_leads_lock", [leader | KEYED, TASK | KEYED]) for leader in (TASK, CLAIMED, RUNNING)),
    ("worker_tasks_one_leads_lock", [TASK | KEYED, RUNNING | KEYED | {"role": "other"}]),
    *(("worker_tasks_one_unfinished", [first | UNIQUE, TASK | UNIQUE]) for first in (TASK, CLAIMED, RUNNING)),
    ("worker_tasks_one_unfinished", [TASK | UNIQUE | {"waits_for": "time"}, TASK | UNIQUE | {"waits_for": "time"}]),
]

#: Rows that may stand side by side.
POSSIBLE_TASKS: list[list[dict[str, Any]]] = [
    POSSIBLE,
    [RUNNING | KEYED, BEHIND, BEHIND, TASK | KEYED | {"waits_for": "time"}],
    [COMPLETED | KEYED, COMPLETED | KEYED, TASK | KEYED],
    [TASK | UNIQUE, TASK | UNIQUE | {"role": "other"}],
    [COMPLETED | UNIQUE, COMPLETED | UNIQUE, TASK | UNIQUE],
]

IMPOSSIBLE_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    *(
        ("account_policies_weight_in_range", "account_policies", {"account": "a", "weight": weight})
        for weight in (0, -1, "NaN", "Infinity", 1_000_001)
    ),
    ("account_policies_cap_not_negative", "account_policies", {"account": "a", "cap": -1}),
    ("workers_status_known", "workers", {"worker_id": "w", "hostname": "h", "pid": 1, "concurrency": 1, "status": "?"}),
    *(
        (f"scheduled_jobs_{check}", "scheduled_jobs", {"name": "n", "target": "t", "cron_expression": "@daily"} | row)
        for check, row in (
            ("kind_known", {"kind": "?"}),
            ("misfire_known", {"misfire": "?"}),
            ("grace_up_to_a_year", {"misfire_grace": -1}),
            ("grace_up_to_a_year", {"misfire_grace": float("inf")}),
            ("next_run_in_reach", {"next_run_at": "0044-03-15 BC"}),
            ("overlap_known", {"overlap": "?"}),
        )
    ),
    *(
        (f"api_tokens_{check}", "api_tokens", {"id": "i", "name": "n", "hash": b"0" * 32, "created_by": "c"} | row)
        for check, row in (
            ("hash_is_sha256", {"hash": b"short", "scopes": ["read"]}),
            ("scopes_known", {"scopes": ["?"]}),
        )
    ),
]

TOKEN_OF_ANNA = {"id": "i", "name": "anna", "hash": b"0" * 32, "created_by": "c", "scopes": ["read"]}

IMPOSSIBLE_PAIRS = [("api_tokens_one_of_a_name", "api_tokens", TOKEN_OF_ANNA, {"id": "another"})]


def insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)


def insert_tasks(connection: Connection, tasks: list[dict[str, Any]]) -> None:
    for n, task in enumerate(tasks):
        insert(connection, "worker_tasks", {"task_id": f"task-{n}"} | task)


@pytest.mark.parametrize(("refused_by", "tasks"), IMPOSSIBLE_TASKS)
def test_a_task_cannot_be(database: Database, refused_by: str, tasks: list[dict[str, Any]]) -> None:
    *beside, impossible = tasks
    with database.transaction() as connection:
        insert_tasks(connection, beside)
        with pytest.raises(IntegrityError, match=f'"{refused_by}"'):
            insert(connection, "worker_tasks", {"task_id": "impossible"} | impossible)
        connection.exec_driver_sql("ROLLBACK")


@pytest.mark.parametrize("tasks", POSSIBLE_TASKS)
def test_these_tasks_can_be_side_by_side(database: Database, tasks: list[dict[str, Any]]) -> None:
    with database.transaction() as connection:
        insert_tasks(connection, tasks)
        found = connection.exec_driver_sql("SELECT status FROM worker_tasks ORDER BY id").scalars()
        assert list(found) == [task["status"] for task in tasks]


@pytest.mark.parametrize(("refused_by", "table", "row"), IMPOSSIBLE_ROWS)
def test_a_row_cannot_be(database: Database, refused_by: str, table: str, row: dict[str, Any]) -> None:
    with database.statement() as connection, pytest.raises(IntegrityError, match=f'"{refused_by}"'):
        insert(connection, table, row)


@pytest.mark.parametrize(("refused_by", "table", "row", "other"), IMPOSSIBLE_PAIRS)
def test_two_rows_cannot_be(
    database: Database, refused_by: str, table: str, row: dict[str, Any], other: dict[str, Any]
) -> None:
    with database.statement() as connection:
        insert(connection, table, row)
        with pytest.raises(IntegrityError, match=f'"{refused_by}"'):
            insert(connection, table, row | other)


def test_every_check_and_unique_index_has_its_impossible_state() -> None:
    checks = {c.name for t in tables.metadata.tables.values() for c in t.constraints if isinstance(c, CheckConstraint)}
    unique = {i.name for t in tables.metadata.tables.values() for i in t.indexes if i.unique}
    shown = {name for name, *_ in [*IMPOSSIBLE_TASKS, *IMPOSSIBLE_ROWS, *IMPOSSIBLE_PAIRS]}
    assert shown == checks | unique
