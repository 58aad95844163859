"""A task that expired before it started keeps no unique key from a new request: cancelled, it would take both along."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import claimed, enqueued, looked
from tests.processes import Rows

Put = Callable[..., Receipt]

STATES = "SELECT id, status, coalesce(waits_for, '') FROM worker_tasks ORDER BY id"
EVENTS = "SELECT task, kind, from_status, to_status, by FROM task_events"
EXPIRE = "UPDATE worker_tasks SET expires_at = now()"


def test_it_is_cancelled_and_the_request_is_new(put: Put, rows: Rows) -> None:
    old = put(unique_key="u", delay=1000.0)
    rows(EXPIRE)
    new = put(unique_key="u", enqueued_by="me")
    assert new.is_new
    assert rows(STATES) == [(old.id, "cancelled", ""), (new.id, "pending", "")]
    assert rows(EVENTS) == [(old.id, "expired", "pending", "cancelled", "me")]


def test_so_is_one_whose_ticket_lies_in_a_queue(put: Put, database: Database, rows: Rows) -> None:
    put(unique_key="u")
    claimed(database)
    rows(EXPIRE)
    assert put(unique_key="u").is_new
    assert rows("SELECT status FROM worker_tasks ORDER BY id") == [("cancelled",), ("pending",)]


@pytest.mark.parametrize("state", ["running", "in time"])
def test_one_that_runs_or_may_still_start_is_found(put: Put, rows: Rows, state: str) -> None:
    old = put(unique_key="u", expires_in=1000.0)
    if state == "running":
        rows(f"""{EXPIRE}, status = 'running', token = gen_random_uuid(), claimed_at = now(), started_at = now(),
            last_heartbeat_at = now(), worker_id = 'w'""")
    assert put(unique_key="u").id == old.id


def test_the_next_of_its_lock_key_is_the_head(put: Put, rows: Rows) -> None:
    old, waits = put(unique_key="u", lock_key="k"), put(lock_key="k")
    rows(f"{EXPIRE} WHERE id = {old.id}")
    new = put(unique_key="u", lock_key="k")
    assert rows(STATES) == [(old.id, "cancelled", ""), (waits.id, "pending", ""), (new.id, "pending", "lock")]


def test_of_a_bulk_only_those_whose_holder_expired_are_new(put: Put, database: Database, rows: Rows) -> None:
    expired, stays = put(unique_key="u", lock_key="k"), put(unique_key="v")
    rows(f"{EXPIRE} WHERE id = {expired.id}")
    with database.transaction() as connection:
        found = enqueue(connection, [new_task(unique_key=key, lock_key="k") for key in "uvw"])
    assert [receipt.is_new for receipt in found] == [True, False, True]
    assert found[1].id == stays.id
    assert rows(
        "SELECT count(*) FROM worker_tasks WHERE lock_key = 'k' AND waits_for IS NULL AND status = 'pending'"
    ) == [(1,)]


def test_an_enqueue_in_sql_takes_an_expired_holders_unique_key_as_well(database: Database, rows: Rows) -> None:
    rows(
        "INSERT INTO roles (role, definition, parameters) VALUES ('work', '{\"priority\": 0, \"max_rounds\": 1}', '[]')"
    )
    (old,) = enqueued(database, new_task(unique_key="u", lock_key="k"))
    call = "SELECT id, is_new FROM celeriac.enqueue('work', unique_key => 'u', lock_key => 'k', enqueued_by => 'sql')"
    assert rows(call) == [(old.id, False)]
    rows(EXPIRE)
    ((new, is_new),) = rows(call)
    assert is_new
    assert looked(database) == ["work"]
    assert rows(STATES) == [(old.id, "cancelled", ""), (new, "pending", "")]
    by = rows.one("SELECT 'sql sql:' || session_user")
    assert rows(EVENTS) == [(old.id, "expired", "pending", "cancelled", by)]
