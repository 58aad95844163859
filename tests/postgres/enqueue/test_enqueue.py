"""Enqueue: one INSERT, in the caller's transaction; keys are looked after, and what is refused leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from celeriac import Celeriac, Task
from celeriac.enqueue.rows import Receipt
from celeriac.errors import ArgumentsTooLarge, BadArguments, IdTaken, UnknownRole
from tests.processes import Rows

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
