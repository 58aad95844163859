"""The database refuses states that cannot be, whatever code writes them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from celeriac.store.connections import Database
from tests.processes import Rows

TOKEN = "00000000-0000-4000-8000-000000000001"
NOW = "2026-01-01"

OTHER_TOKEN = "00000000-0000-4000-8000-000000000002"

TASK = {"role": "work", "status": "pending"}
CLAIMED = TASK | {"status": "claimed", "token": TOKEN, "claimed_at": NOW}
RUNNING = CLAIMED | {
    "status": "running", "token": OTHER_TOKEN, "worker_id": "w", "started_at": NOW, "last_heartbeat_at": NOW
}  # fmt: skip
COMPLETED = TASK | {"status": "completed", "completed_at": NOW}
POSSIBLE = [TASK, CLAIMED, RUNNING, COMPLETED]

KEYED = {"lock_key": "k"}
UNIQUE = {"unique_key": "u"}
BEHIND = TASK | KEYED | {"waits_for": "lock"}

#: Of what is written to `worker_tasks`, what refuses it: rows of which the last cannot be beside the others.
IMPOSSIBLE_TASKS: list[tuple[str, list[dict[str, Any]]]] = [
    ("there is no status 'waiting'", [TASK | {"status": "waiting"}]),
    ("a pending task does not wait for 'godot'", [TASK | {"waits_for": "godot"}]),
    ("a claimed task does not wait for 'time'", [CLAIMED | {"waits_for": "time"}]),
    ("a running task does not wait for 'lock'", [RUNNING | KEYED | {"waits_for": "lock"}]),
    ("a completed task does not wait for 'time'", [COMPLETED | {"waits_for": "time"}]),
    ("is the id of a schedule's task", [TASK | {"task_id": "daily@2031-01-01T00:00:00Z"}]),
    ('null value in column "lock_key"', [TASK | {"waits_for": "lock"}]),
    ("a task that waits has no token", [TASK | {"token": TOKEN}]),
    ("a claimed task has a token", [CLAIMED | {"token": None}]),
    ("a claimed task has a token, and a worker only if it runs", [CLAIMED | {"worker_id": "w"}]),
    ("a running task has a token", [RUNNING | {"token": None}]),
    ("a running task has a token, and a worker", [RUNNING | {"worker_id": None}]),
    ("an unfinished task has no completed_at", [CLAIMED | {"completed_at": NOW}]),
    ("an unfinished task has no completed_at", [RUNNING | {"completed_at": NOW}]),
    *(
        ("no time in the years 1 to 9999", [COMPLETED | {time: unreadable}])
        for time in ("scheduled_for", "expires_at", "created_at", "claimed_at", "started_at", "completed_at")
        for unreadable in ("infinity", "10000-01-01 00:00:00+00", "0001-12-31 00:00:00+00 BC")
    ),
    ("scheduled_for is no time in the years 1 to 9999", [TASK | {"waits_for": "time", "scheduled_for": "infinity"}]),
    ('"tasks_counts_positive"', [TASK | {"retry_count": -1}]),
    ('"tasks_counts_positive"', [TASK | {"tries": -1}]),
    ('"tasks_counts_positive"', [TASK | {"losses": -1}]),
    *(
        ("another task has the task_id 't'", [first | {"task_id": "t"}, second | {"task_id": "t"}])
        for first in (TASK, RUNNING, COMPLETED)
        for second in (TASK, COMPLETED)
    ),
    *(
        ("the lock key 'k' has a head", [head | KEYED, other | KEYED | {"role": "other"}])
        for head, other in ((TASK, CLAIMED), (TASK, RUNNING), (CLAIMED, RUNNING), (RUNNING, CLAIMED))
    ),
    *(('"tasks_one_unfinished"', [first | UNIQUE, TASK | UNIQUE]) for first in (TASK, CLAIMED, RUNNING)),
    ('"tasks_one_unfinished"', [TASK | UNIQUE | {"waits_for": "time"}, TASK | UNIQUE | {"waits_for": "time"}]),
]

#: What is written without what belongs to its status, and what stands there instead of the impossible.
MENDED_TASKS: list[tuple[list[dict[str, Any]], str]] = [
    ([CLAIMED | {"claimed_at": None}], "claimed_at IS NOT NULL"),
    ([RUNNING | {"claimed_at": None}], "claimed_at IS NOT NULL"),
    ([RUNNING | {"started_at": None}], "started_at IS NOT NULL"),
    ([RUNNING | {"last_heartbeat_at": None}], "last_heartbeat_at IS NOT NULL"),
    *(
        ([COMPLETED | {"status": status, "completed_at": None}], "completed_at IS NOT NULL")
        for status in ("completed", "failed", "cancelled")
    ),
    ([TASK | {"completed_at": NOW}], "completed_at IS NULL"),
    *(([head | KEYED, TASK | KEYED], "waits_for = 'lock'") for head in (TASK, CLAIMED, RUNNING)),
]

#: Rows that may stand side by side.
POSSIBLE_TASKS: list[list[dict[str, Any]]] = [
    POSSIBLE,
    [RUNNING | KEYED, BEHIND, BEHIND, TASK | KEYED | {"waits_for": "time"}],
    [COMPLETED | KEYED, COMPLETED | KEYED, TASK | KEYED],
    [TASK | UNIQUE, TASK | UNIQUE | {"role": "other"}],
    [COMPLETED | UNIQUE, COMPLETED | UNIQUE, TASK | UNIQUE],
]

ENTRY = {"role": "work", "account": "a", "due_at": NOW, "id": 1}
TICKET = {"token": TOKEN, "role": "work", "ids": [1], "accounts": ["a"]}
STARTED = TICKET | {"worker_id": "w", "started_at": NOW, "heartbeat_at": NOW}
TASK_ROW = {"task_id": "t", "role": "work"}
PAST = {
    "id": 1, "task_id": "t", "role": "work", "account": "", "status": "completed", "priority": 0, "scheduled_for": NOW,
    "args": "[]", "kwargs": "{}", "completed_at": NOW, "retry_count": 0, "tries": 0, "max_rounds": 1, "losses": 0,
    "created_at": NOW,
}  # fmt: skip

#: What limits nobody.
NO_LIMITS: list[tuple[str, dict[str, Any]]] = [
    *((f"{name}_some", {name: []}) for name in ("roles", "accounts", "keys")),
    ("priorities_in_order", {"priorities": [2, 1]}),
]

IMPOSSIBLE_ROWS: list[tuple[str, str, dict[str, Any]]] = [
    *(("tasks_counts_positive", "tasks", TASK_ROW | {count: -1}) for count in ("retry_count", "tries", "losses")),
    ("tickets_ids_check", "tickets", TICKET | {"ids": [], "accounts": []}),
    ("tickets_an_account_an_id", "tickets", TICKET | {"accounts": ["a", "b"]}),
    *(
        ("tickets_held_as_worker_says", "tickets", STARTED | {part: None})
        for part in ("worker_id", "started_at", "heartbeat_at")
    ),
    ("history_status_known", "history", PAST | {"status": "running"}),
    ("completed_at", "history", PAST | {"completed_at": None}),
    ("claimed_at", "tickets", TICKET | {"claimed_at": None}),
    ("ring_seg_check", "ring", {"seg": 3}),
    ("ring_is_one_row", "ring", {"seg": 1}),
    (
        "minutes_until_is_one_row",
        "minutes_until",
        {"until": "2026-01-01", "task": 0, "seen": 0, "seen_at": "2026-01-01"},
    ),
    *(
        ("account_policies_weight_in_range", "account_policies", {"account": "a", "weight": weight})
        for weight in (0, -1, 1e-9, "NaN", "Infinity", 1_000_001)
    ),
    ("account_policies_cap_not_negative", "account_policies", {"account": "a", "cap": -1}),
    *(
        ("ticks_made_or_left_out", "ticks", {"schedule": 1, "due_at": NOW} | row)
        for row in ({}, {"task_id": "t", "left_out": 1, "why": "x"}, {"task_id": "t", "why": "x"})
    ),
    ("failure_marks_state_known", "failure_marks", {"fingerprint": "f", "state": "?", "by": "me", "at": NOW}),
    ("alerts_severity_known", "alerts", {"name": "a", "subject": "s", "value": 1, "threshold": 0, "severity": "?"}),
    ("alert_deliveries_channel_known", "alert_deliveries", {"channel": "?", "message": "{}"}),
    ("workers_status_known", "workers", {"worker_id": "w", "hostname": "h", "pid": 1, "concurrency": 1, "status": "?"}),
    *(
        (
            f"bulk_actions_{check}",
            "bulk_actions",
            {"move": "retry", "filter": "{}", "upto": 1, "until": NOW, "by": "b"} | row,
        )
        for check, row in (
            ("move_known", {"move": "?"}),
            ("priority_of_prioritise", {"priority": 1}),
            ("priority_of_prioritise", {"move": "prioritise"}),
            ("state_known", {"state": "?"}),
            ("ended_as_state_says", {"state": "done"}),
            ("ended_as_state_says", {"ended_at": NOW}),
            ("each_task_once", {"asked": 1, "done": 1, "skipped": 1}),
            ("each_task_once", {"done": -1}),
        )
    ),
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
            *((check, {"scopes": ["read"]} | row) for check, row in NO_LIMITS),
        )
    ),
    (
        "dashboard_sessions_hash_is_sha256",
        "dashboard_sessions",
        {"hash": b"short", "token": "t", "expires_at": NOW},
    ),
    *((f"enqueuers_{check}", "enqueuers", {"login": "l", "by": "b"} | row) for check, row in NO_LIMITS),
    *(
        (f"dead_letters_{check}", "dead_letters", {"digest": b"0" * 32, "reason": "why", "message": b"hello"} | row)
        for check, row in (
            ("digest_is_sha256", {"digest": b"short", "size": 5}),
            ("size_is_the_whole", {"size": 4}),
        )
    ),
]

LETTER = {"digest": b"0" * 32, "reason": "why", "size": 5, "message": b"hello"}

TOKEN_OF_ANNA = {"id": "i", "name": "anna", "hash": b"0" * 32, "created_by": "c", "scopes": ["read"]}

JOB = {"name": "n", "target": "t", "cron_expression": "@daily"}
BEHIND_ONE = ENTRY | {"lock_key": "k", "priority": 0}

#: A row, and what another may not share with it.
IMPOSSIBLE_PAIRS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("dead_letters_digest", "dead_letters", LETTER, {"message": b"there"}),
    ("api_tokens_one_of_a_name", "api_tokens", TOKEN_OF_ANNA, {"id": "another"}),
    ("scheduled_jobs_name_unique", "scheduled_jobs", JOB, {"target": "another"}),
    ("tasks_pkey", "tasks", TASK_ROW | {"id": 1}, {"task_id": "another"}),
    ("tasks_task_id", "tasks", TASK_ROW, {"role": "another"}),
    ("tasks_one_unfinished", "tasks", TASK_ROW | UNIQUE, {"task_id": "another"}),
    ("tickets_pkey", "tickets", TICKET, {"ids": [2]}),
    ("locks_pkey", "locks", {"lock_key": "k", "head": 1}, {"head": 2}),
    ("days_begun_first", "days_begun", {"day": "2026-01-01", "first": 7}, {"day": "2026-01-02"}),
    ("ready_in_order", "ready", ENTRY | {"seg": 0, "priority": 0}, {"losses": 1}),
    ("later_of_account", "later", ENTRY, {"began": True}),
    ("behind_in_order", "behind", BEHIND_ONE, {"role": "another"}),
    ("parked_of_account", "parked", ENTRY | {"priority": 0}, {}),
]

#: The index of the segment an entry is in speaks for that of all.
CALLS_ITSELF = {"ready_in_order": "ready_0_role_account_priority_due_at_id_seg_idx"}

#: Primary keys that only number rows, or name them, are not worth a state each.
ROOMS = ("tasks", "tickets", "locks")

CHECKS = """
SELECT DISTINCT conname FROM pg_constraint WHERE connamespace = 'celeriac'::regnamespace AND contype = 'c'
"""

UNIQUE_INDEXES = """
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
WHERE c.relnamespace = 'celeriac'::regnamespace AND i.indisunique AND NOT c.relispartition
    AND (NOT i.indisprimary OR t.relname = ANY (:rooms))
"""


def insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    connection.execute(text(f"INSERT INTO celeriac.{table} ({names}) VALUES ({values})"), row)


def insert_tasks(connection: Connection, tasks: list[dict[str, Any]]) -> None:
    for n, task in enumerate(tasks):
        insert(connection, "worker_tasks", {"task_id": f"task-{n}"} | task)


@pytest.mark.parametrize(("refused_by", "tasks"), IMPOSSIBLE_TASKS)
def test_a_task_cannot_be(database: Database, refused_by: str, tasks: list[dict[str, Any]]) -> None:
    *beside, impossible = tasks
    with database.transaction() as connection:
        insert_tasks(connection, beside)
        with pytest.raises(IntegrityError, match=refused_by):
            insert(connection, "worker_tasks", {"task_id": "impossible"} | impossible)
        connection.exec_driver_sql("ROLLBACK")


@pytest.mark.parametrize(("tasks", "stands"), MENDED_TASKS)
def test_a_task_that_says_too_little_is_what_it_can_be(
    database: Database, tasks: list[dict[str, Any]], stands: str
) -> None:
    with database.transaction() as connection:
        insert_tasks(connection, tasks)
        found = f"SELECT status, {stands} FROM celeriac.worker_tasks ORDER BY id DESC LIMIT 1"
        assert connection.exec_driver_sql(found).one() == (tasks[-1]["status"], True)


@pytest.mark.parametrize("tasks", POSSIBLE_TASKS)
def test_these_tasks_can_be_side_by_side(database: Database, tasks: list[dict[str, Any]]) -> None:
    with database.transaction() as connection:
        insert_tasks(connection, tasks)
        found = connection.exec_driver_sql("SELECT status FROM celeriac.worker_tasks ORDER BY id").scalars()
        assert list(found) == [task["status"] for task in tasks]


@pytest.mark.parametrize(("refused_by", "table", "row"), IMPOSSIBLE_ROWS)
def test_a_row_cannot_be(database: Database, refused_by: str, table: str, row: dict[str, Any]) -> None:
    with database.statement() as connection, pytest.raises(IntegrityError, match=f'"{refused_by}"'):
        insert(connection, table, row)


@pytest.mark.parametrize(("refused_by", "table", "row", "other"), IMPOSSIBLE_PAIRS)
def test_two_rows_cannot_be(
    database: Database, refused_by: str, table: str, row: dict[str, Any], other: dict[str, Any]
) -> None:
    with database.transaction() as connection:
        insert(connection, table, row)
        with pytest.raises(IntegrityError, match=f'"{CALLS_ITSELF.get(refused_by, refused_by)}"'):
            insert(connection, table, row | other)
        connection.exec_driver_sql("ROLLBACK")


def test_every_check_and_unique_index_has_its_impossible_state(rows: Rows) -> None:
    checks = {name for (name,) in rows(CHECKS)}
    unique = {name for (name,) in rows(UNIQUE_INDEXES, rooms=list(ROOMS))}
    shown = {name for name, *_ in [*IMPOSSIBLE_ROWS, *IMPOSSIBLE_PAIRS]}
    assert checks | unique <= shown
    assert shown - checks - unique == {"completed_at", "claimed_at"}
