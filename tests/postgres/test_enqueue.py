"""Enqueue: one INSERT, in the caller's transaction; keys are looked after, and what is refused leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from celeriac import Celeriac, Task
from celeriac.enqueue.insert import enqueue
from celeriac.enqueue.rows import Receipt
from celeriac.errors import ArgumentsTooLarge, BadArguments, IdTaken, UnknownRole
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued
from tests.processes import PATIENCE, Rows

# Celery deprecates a task attribute of that name; the role's option is ours.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*The 'priority' task attribute")

Put = Callable[..., Receipt]

COUNT = "SELECT count(*) FROM worker_tasks"

#: How a row comes to each state, for what it then keeps or frees.
BECOMES = {
    "pending": "status = 'pending'",
    "due later": "waits_for = 'time'",
    "claimed": "status = 'claimed', token = gen_random_uuid(), claimed_at = now()",
    "running": """status = 'running', token = gen_random_uuid(), claimed_at = now(), started_at = now(),
        last_heartbeat_at = now(), worker_id = 'w'""",
    "completed": "status = 'completed', completed_at = now()",
    "failed": "status = 'failed', completed_at = now()",
    "cancelled": "status = 'cancelled', completed_at = now()",
}
UNFINISHED = ("pending", "due later", "claimed", "running")
FINISHED = ("completed", "failed", "cancelled")


@pytest.fixture
def sync(app: Celeriac) -> Task[..., Any]:
    """A task with every key; not prompt, so that nothing but the test moves its rows."""

    @app.task(
        bind=True, role="sync", fair_by="account_id", lock_by="store_id", unique_by="{store_id}:{kind}", priority=3,
        prompt=False, max_retries=2, max_rounds=4, shared=False,
    )  # fmt: skip
    def sync(self: Task[..., Any], account_id: int, store_id: int, kind: str = "full") -> None: ...

    return sync


@pytest.fixture
def plain(app: Celeriac) -> Task[..., Any]:
    @app.task(role="plain", prompt=False, unique_by="key", shared=False)
    def plain(key: str | None = None, filler: Any = None) -> None: ...

    return plain


# -- a row and its receipt ---------------------------------------------------------------------------------------------


def test_a_call_is_one_row_with_its_keys_and_the_roles_defaults(sync: Task[..., Any], rows: Rows) -> None:
    result = sync.delay(7, 11)
    assert result.is_new
    columns = "id, task_id, role, account, lock_key, unique_key, status, waits_for, priority, args, kwargs, max_retries"
    assert rows(f"SELECT {columns}, max_rounds, retry_count, tries, losses FROM worker_tasks") == [
        (result.row_id, result.id, "sync", "7", "store_id:11", "11:full", "pending", None, 3, [],
         {"account_id": 7, "store_id": 11}, 2, 4, 0, 0, 0)
    ]  # fmt: skip


def test_a_call_may_override_what_the_role_says(sync: Task[..., Any], rows: Rows) -> None:
    sync.using(priority=50, account="vip", lock_key="mine", unique_key="once", max_retries=9, timeout=1.5).delay(7, 11)
    columns = "priority, account, lock_key, unique_key, max_retries, timeout"
    assert rows(f"SELECT {columns} FROM worker_tasks") == [(50, "vip", "mine", "once", 9, 1.5)]


def test_an_account_may_be_null(plain: Task[..., Any], rows: Rows) -> None:
    plain.delay()
    assert rows("SELECT account, unique_key FROM worker_tasks") == [("", None)]


# -- unique keys -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", UNFINISHED)
def test_a_unique_key_is_taken_while_its_task_is_unfinished(plain: Task[..., Any], rows: Rows, state: str) -> None:
    first = plain.delay("k")
    rows(f"UPDATE worker_tasks SET {BECOMES[state]}")
    again = plain.delay("k", filler="other arguments")
    assert (again.is_new, again.id, again.row_id) == (False, first.id, first.row_id)
    assert rows("SELECT kwargs FROM worker_tasks") == [({"key": "k"},)]


@pytest.mark.parametrize("state", FINISHED)
def test_a_unique_key_is_free_once_its_task_is_finished(plain: Task[..., Any], rows: Rows, state: str) -> None:
    first = plain.delay("k")
    rows(f"UPDATE worker_tasks SET {BECOMES[state]}")
    again = plain.delay("k")
    assert again.is_new
    assert again.id != first.id


def test_a_unique_key_is_its_roles_own(put: Put) -> None:
    assert put("one", unique_key="k").is_new
    assert put("two", unique_key="k").is_new


def test_tasks_without_a_unique_key_are_never_the_same(plain: Task[..., Any]) -> None:
    assert plain.delay().row_id != plain.delay().row_id


@pytest.mark.parametrize("state", [*UNFINISHED, *FINISHED])
def test_a_task_id_is_accepted_once_whatever_became_of_it(plain: Task[..., Any], rows: Rows, state: str) -> None:
    first = plain.apply_async(task_id="mine")
    rows(f"UPDATE worker_tasks SET {BECOMES[state]}")
    again = plain.apply_async(task_id="mine")
    assert (first.is_new, again.is_new, again.row_id) == (True, False, first.row_id)
    assert rows.one(COUNT) == 1


def test_a_task_id_is_no_other_tasks(plain: Task[..., Any], sync: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    plain.apply_async(("a",), task_id="mine")
    for task, args in ((plain, ("b",)), (sync, (1, 2))):
        with pytest.raises(IdTaken, match="task_id='mine'"):
            task.apply_async(args, task_id="mine")
    with Session(app.database.engine) as session:
        with pytest.raises(IdTaken):
            plain.apply_async(("b",), task_id="mine", session=session)
        plain.apply_async(("c",), task_id="another", session=session)
        session.commit()
    assert rows("SELECT task_id FROM worker_tasks ORDER BY id") == [("mine",), ("another",)]


@pytest.mark.parametrize("again", ["retry_count = 1", "tries = 1"])
def test_a_task_that_was_tried_again_with_other_arguments_is_the_same(
    plain: Task[..., Any], app: Celeriac, rows: Rows, again: str
) -> None:
    """A new round counts retries anew, and keeps the arguments."""
    first = plain.apply_async(("a",), task_id="mine")
    rows(f"UPDATE tasks SET kwargs = '{{}}', {again}")
    assert plain.apply_async(("a",), task_id="mine").row_id == first.row_id
    app.register_roles()
    in_sql = "SELECT (celeriac.enqueue('plain', '[\"a\"]', task_id => 'mine')).id"
    assert rows.one(in_sql) == first.row_id


def test_a_task_that_failed_in_its_only_attempt_is_no_other_tasks(plain: Task[..., Any], rows: Rows) -> None:
    plain.apply_async(("a",), task_id="mine")
    rows("UPDATE worker_tasks SET status = 'failed', tries = 1, completed_at = now()")
    with pytest.raises(IdTaken):
        plain.apply_async(("b",), task_id="mine")


def test_ids_of_schedules_are_nobody_elses(plain: Task[..., Any], rows: Rows) -> None:
    with pytest.raises(BadArguments, match="ids of schedules"):
        plain.apply_async(task_id="hourly@2031-01-01T00:00:00Z")
    assert rows.one(COUNT) == 0


def test_a_task_id_counts_before_a_unique_key(put: Put, rows: Rows) -> None:
    first, _ = put(task_id="mine"), put(unique_key="taken")
    again = put(task_id="mine", unique_key="taken")
    assert (again.is_new, again.id) == (False, first.id)


# -- many at once ------------------------------------------------------------------------------------------------------


def test_duplicates_within_a_bulk_get_the_row_of_the_first(plain: Task[..., Any], rows: Rows) -> None:
    held = plain.delay("held")
    results = plain.bulk([("a",), ("held",), {"key": "b"}, ("a",), ("b", 2), ()])
    assert [r.is_new for r in results] == [True, False, True, False, False, True]
    assert results[1].row_id == held.row_id
    assert results[3].row_id == results[0].row_id
    assert results[4].row_id == results[2].row_id
    assert rows.one(COUNT) == 4


def test_a_bulk_of_any_size_answers_in_order(plain: Task[..., Any], rows: Rows) -> None:
    results = plain.bulk([(str(n),) for n in range(2500)])
    stored = rows("SELECT id, task_id, kwargs ->> 'key' FROM worker_tasks ORDER BY (kwargs ->> 'key')::int")
    assert stored == [(r.row_id, r.id, str(n)) for n, r in enumerate(results)]


def test_a_bulk_is_all_or_nothing(plain: Task[..., Any], rows: Rows) -> None:
    with pytest.raises(BadArguments):
        plain.bulk([("fine",), {"no_such_argument": 1}])
    assert rows.one(COUNT) == 0


def test_an_empty_bulk_is_nothing(plain: Task[..., Any], rows: Rows) -> None:
    assert plain.bulk([]) == []
    assert rows.one(COUNT) == 0


# -- in the caller's transaction ---------------------------------------------------------------------------------------


def test_a_row_comes_with_the_callers_session(plain: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    with Session(app.database.engine) as session:
        plain.using(session=session).delay("k")
        assert plain.using(session=session).delay("k").is_new is False
        assert rows.one(COUNT) == 0
        session.commit()
    assert rows.one(COUNT) == 1


def test_a_row_goes_with_the_callers_session(plain: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    with Session(app.database.engine) as session:
        plain.using(session=session).delay("k")
        plain.bulk([("l",), ("m",)], session=session)
        session.rollback()
    assert rows.one(COUNT) == 0
    assert plain.delay("k").is_new


@pytest.mark.parametrize("commits", [True, False])
def test_a_row_shares_the_fate_of_the_callers_connection(
    plain: Task[..., Any], app: Celeriac, rows: Rows, commits: bool
) -> None:
    with app.database.engine.connect() as connection:
        plain.using(connection=connection).delay("k")
        plain.bulk([("l",), ("m",)], connection=connection)
        assert rows.one(COUNT) == 0
        connection.commit() if commits else connection.rollback()
    assert rows.one(COUNT) == (3 if commits else 0)


def test_an_error_of_the_callers_own_leaves_no_row(plain: Task[..., Any], app: Celeriac, rows: Rows) -> None:
    def write() -> None:
        with app.database.engine.begin() as connection:
            plain.using(connection=connection).delay("k")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert rows.one(COUNT) == 0


# -- lock keys ---------------------------------------------------------------------------------------------------------


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


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("k", 1, "one too many"), TypeError),
        (("k", object()), BadArguments),
        (("k", float("nan")), BadArguments),
        (("k", "NUL \x00"), BadArguments),
        (("k", "x" * 300_000), ArgumentsTooLarge),
    ],
)
def test_arguments_that_are_refused_leave_nothing(
    plain: Task[..., Any], app: Celeriac, rows: Rows, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with app.database.engine.connect() as connection:
        with pytest.raises(error):
            plain.apply_async(arguments, connection=connection)
        assert connection.execute(text(COUNT)).scalar_one() == 0
    with pytest.raises(error):
        plain.bulk([("fine",), arguments])
    assert rows.one(COUNT) == 0


def test_arguments_that_give_no_lock_are_refused(app: Celeriac, rows: Rows) -> None:
    @app.task(role="keyed", lock_by="{store[id]}", prompt=False, shared=False)
    def keyed(store: dict[str, int]) -> None: ...

    with pytest.raises(BadArguments, match="give no key"):
        keyed.delay({})
    assert rows.one(COUNT) == 0


def test_an_unknown_role_is_refused(app: Celeriac, rows: Rows) -> None:
    with pytest.raises(UnknownRole, match="no role 'nobody_knows'"):
        app.send_task("nobody_knows", args=(1,))
    with pytest.raises(UnknownRole):
        app.enqueue_many("nobody_knows", [(1,)])
    assert rows.one(COUNT) == 0
