"""Of tasks with one lock key the first is its head, in a bulk too; what is due later waits, on the database's clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from celeriac import Task
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.enqueue.test_enqueue import BECOMES, FINISHED, Put
from tests.postgres.stages import enqueued
from tests.processes import PATIENCE, Rows

# Celery deprecates a task attribute of that name; the role's option is ours.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*The 'priority' task attribute")


def waits_for(rows: Rows, *receipts: Receipt) -> list[object]:
    """What each of these tasks waits for, once the look after the commit is done."""
    return [rows.one("SELECT waits_for FROM worker_tasks WHERE id = :id", id=receipt.id) for receipt in receipts]


def test_of_tasks_with_one_lock_key_the_first_is_its_head_and_the_others_wait(put: Put, rows: Rows) -> None:
    receipts = [put(role, lock_key="k") for role in ("one", "one", "two")]
    assert waits_for(rows, *receipts, put("one", lock_key="other")) == [None, "lock", "lock", None]


def test_of_a_bulk_with_one_lock_key_the_first_is_its_head(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        receipts = enqueue(connection, [new_task(lock_key=key) for key in ("a", "b", "a", "b", "c")])
    assert waits_for(rows, *receipts) == [None, None, "lock", "lock", None]


@pytest.mark.parametrize("state", ["pending", "claimed", "running"])
def test_a_lock_is_held_by_its_leader_in_any_unfinished_state(put: Put, rows: Rows, state: str) -> None:
    put(lock_key="k")
    rows(f"UPDATE worker_tasks SET {BECOMES[state]}")
    assert waits_for(rows, put(lock_key="k")) == ["lock"]


@pytest.mark.parametrize("state", FINISHED)
def test_a_finished_task_holds_no_lock(put: Put, rows: Rows, state: str) -> None:
    put(lock_key="k")
    rows(f"UPDATE worker_tasks SET {BECOMES[state]}")
    assert waits_for(rows, put(lock_key="k")) == [None]


def test_a_bulk_whose_would_be_leader_exists_already_still_gets_one(database: Database, put: Put, rows: Rows) -> None:
    """The first of a key is to lead it; when it is not inserted, as its unique key is taken, the next one has to."""
    put(unique_key="taken", lock_key="k", delay=3600.0)
    with database.transaction() as connection:
        bulk = [new_task(unique_key="taken", lock_key="k"), new_task(unique_key="free", lock_key="k")]
        receipts = enqueue(connection, [*bulk, new_task(lock_key="k")])
    assert [r.is_new for r in receipts] == [False, True, True]
    assert rows("SELECT waits_for FROM worker_tasks ORDER BY id") == [("time",), (None,), ("lock",)]


def test_a_bulk_whose_would_be_leader_is_a_duplicate_within_it_still_gets_one(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        receipts = enqueue(
            connection,
            [
                new_task(unique_key="u", lock_key="j"),
                new_task(unique_key="u", lock_key="k"),
                new_task(unique_key="v", lock_key="k"),
            ],
        )
    assert [r.is_new for r in receipts] == [True, False, True]
    assert waits_for(rows, *receipts) == [None, None, None]


def test_of_a_bulks_tasks_with_one_id_the_first_is_the_task(database: Database, rows: Rows) -> None:
    """Nothing of the other counts: not its role, nor that it would have led a lock key."""
    with database.transaction() as connection:
        same = [new_task("one", task_id="mine"), new_task("two", task_id="mine", lock_key="k")]
        receipts = enqueue(connection, [*same, new_task("three", lock_key="k")])
    assert [r.is_new for r in receipts] == [True, False, True]
    assert receipts[0].id == receipts[1].id
    assert rows("SELECT role, waits_for FROM worker_tasks ORDER BY role") == [("one", None), ("three", None)]


def test_bulks_of_the_same_lock_keys_in_another_order_wait_for_nobody(database: Database, rows: Rows) -> None:
    """Not even for a third one's open transaction, which has one of the keys; and each key gets one head."""
    bulks = [[("1", "a"), ("2", "x"), ("3", "b")], [("4", "b"), ("5", "x"), ("6", "a")]]
    with ThreadPoolExecutor(2) as threads, database.transaction() as other:
        enqueue(other, [new_task(lock_key="x")])
        waiting = [
            threads.submit(enqueued, database, *(new_task(unique_key=u, lock_key=k) for u, k in bulk)) for bulk in bulks
        ]
        receipts = [receipt for future in waiting for receipt in future.result(PATIENCE)]
    assert all(receipt.is_new for receipt in receipts)
    heads = "SELECT lock_key, count(*) FILTER (WHERE waits_for IS NULL) FROM worker_tasks GROUP BY lock_key"
    assert sorted(rows(heads)) == [("a", 1), ("b", 1), ("x", 1)]


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_delay_counts_on_the_databases_clock(plain: Task[..., Any], rows: Rows) -> None:
    plain.apply_async(countdown=100)
    assert rows("SELECT waits_for, scheduled_for - created_at BETWEEN '99.9s' AND '100.1s' FROM worker_tasks") == [
        ("time", True)
    ]


def test_a_delayed_task_leaves_its_lock_to_others(put: Put, rows: Rows) -> None:
    assert put(lock_key="k", delay=100.0).waits_for == "time"
    assert waits_for(rows, put(lock_key="k")) == [None]


def test_of_a_bulk_a_delayed_task_does_not_lead(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        receipts = enqueue(connection, [new_task(lock_key="k", delay=100.0), new_task(lock_key="k")])
    assert waits_for(rows, *receipts) == ["time", None]


def test_an_eta_is_an_instant(plain: Task[..., Any], rows: Rows) -> None:
    eta = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    plain.apply_async(eta=eta)
    assert rows("SELECT waits_for, scheduled_for FROM worker_tasks") == [("time", eta)]


def test_an_eta_that_is_past_makes_a_task_due_and_older_than_others(plain: Task[..., Any], rows: Rows) -> None:
    plain.apply_async(eta=datetime.now(UTC) - timedelta(hours=2))
    assert rows("SELECT waits_for, scheduled_for < now() - interval '1 hour' FROM worker_tasks") == [(None, True)]


def test_an_expiry_counts_on_the_databases_clock(plain: Task[..., Any], rows: Rows) -> None:
    plain.apply_async(expires=60)
    assert rows("SELECT expires_at - created_at BETWEEN '59.9s' AND '60.1s' FROM worker_tasks") == [(True,)]
