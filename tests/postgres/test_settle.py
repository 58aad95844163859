"""Fencing: only the run that has a task settles it; its outcome and its follow-ups come together, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.dispatch import promote
from celeriac.enqueue.rows import Receipt
from celeriac.repair import rescue
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.settle import write
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, claimed, outcome, running, settled, started
from tests.processes import Rows, until

Put = Callable[..., Receipt]

EVENTS = "SELECT kind, from_status, to_status FROM task_events ORDER BY id"
STATUS = "SELECT status FROM worker_tasks ORDER BY id"
ALL = "SELECT to_jsonb(t) FROM worker_tasks t ORDER BY id"


def test_a_success_is_written_once_with_its_result(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    assert settled(database, outcome(task, result={"built": 3})) == {task.id}
    assert rows("SELECT status, result, completed_at >= started_at, waits_for FROM worker_tasks") == [
        ("completed", {"built": 3}, True, None)
    ]
    assert rows(EVENTS) == []


def test_a_failure_says_why(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    settled(database, outcome(task, "failed", kind="failed", error="ValueError: no", tries=1))
    assert rows("SELECT status, error_message, tries FROM worker_tasks") == [("failed", "ValueError: no", 1)]
    assert rows("SELECT kind, from_status, to_status, by, why FROM task_events") == [
        ("failed", "running", "failed", "test", "ValueError: no")
    ]


def test_what_is_not_kept_is_gone(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(unique_key="u"))
    assert settled(database, outcome(task, keep=False)) == {task.id}
    assert rows(STATUS) == []


def test_many_outcomes_are_written_in_one_go_each_its_own(database: Database, rows: Rows) -> None:
    first, second, third = running(database, *(new_task() for _ in range(3)))
    mine = settled(database, outcome(first, result=1), again(second), outcome(third, "failed", kind="failed"))
    assert mine == {first.id, second.id, third.id}
    assert rows(STATUS) == [("completed",), ("pending",), ("failed",)]
    assert rows(EVENTS) == [("retry", "running", "pending"), ("failed", "running", "failed")]


def test_nothing_to_settle_is_nothing(database: Database) -> None:
    assert settled(database) == set()


def test_a_settle_under_another_token_is_refused(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    before = rows(ALL)
    assert settled(database, outcome(task._replace(token=str(uuid.uuid4())))) == set()
    assert rows(ALL) == before
    assert rows(EVENTS) == [("late_finish", "running", "running")]


def test_a_settle_after_a_rescue_is_refused_and_told(database: Database, app: Celeriac, rows: Rows) -> None:
    (task,) = running(database, new_task())
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 day'")
    assert rescue.rescue(app) == 1
    before = rows(ALL)
    assert settled(database, outcome(task, result="too late")) == set()
    assert rows(ALL) == before
    assert rows(EVENTS) == [("rescue", "running", "pending"), ("late_finish", "pending", "pending")]


def test_a_settle_after_a_rescue_leaves_the_run_that_came_after_it_alone(
    database: Database, app: Celeriac, rows: Rows
) -> None:
    (late,) = running(database, new_task())
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 day'")
    rescue.rescue(app)
    (task,) = started(database, *claimed(database), pid=2)
    assert settled(database, outcome(late, result="late"), again(late)) == set()
    assert rows("SELECT status, worker_pid, result FROM worker_tasks") == [("running", 2, None)]
    assert settled(database, outcome(task, result="good")) == {task.id}
    assert rows("SELECT status, result FROM worker_tasks") == [("completed", "good")]


def test_a_settle_of_a_row_that_another_run_finished_and_deleted_is_refused_and_told(
    database: Database, app: Celeriac, rows: Rows
) -> None:
    (late,) = running(database, new_task())
    rows("UPDATE worker_tasks SET last_heartbeat_at = now() - interval '1 day'")
    rescue.rescue(app)
    (task,) = started(database, *claimed(database), pid=2)
    settled(database, outcome(task, keep=False))
    assert settled(database, outcome(late)) == set()
    assert rows(EVENTS) == [("rescue", "running", "pending"), ("late_finish", None, None)]


SAID = {"kept": {"result": 1}, "not kept": {"keep": False}, "a retry": {"status": "pending", "delay": 0.0}}


@pytest.mark.parametrize("again", [True, False], ids=["again", "as if for the first time"])
@pytest.mark.parametrize("said", SAID)
def test_what_is_settled_twice_changes_nothing_and_is_a_late_finish_unless_it_is_said_to_come_again(
    database: Database, rows: Rows, said: str, again: bool
) -> None:
    """Again: the first answer was lost."""
    (task,) = running(database, new_task())
    mine = outcome(task, **SAID[said])
    assert settled(database, mine) == {task.id}
    before = rows(ALL)
    with database.transaction() as connection:
        assert write.settle(connection, [mine], "test", again=again) == {}
    assert rows(ALL) == before
    assert rows("SELECT kind FROM task_events") == [("late_finish",)] * (not again)


def test_of_many_outcomes_only_the_late_one_is_refused(database: Database, rows: Rows) -> None:
    late, task = running(database, new_task(), new_task())
    rows(f"UPDATE worker_tasks SET status = 'pending', token = NULL WHERE id = {late.id}")
    assert settled(database, outcome(late), outcome(task)) == {task.id}
    assert rows(STATUS) == [("pending",), ("completed",)]
    assert rows(EVENTS) == [("late_finish", "pending", "pending")]


def test_a_settle_waits_for_a_release_under_way_and_is_then_refused(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    with ThreadPoolExecutor(1) as thread, database.statement() as watching:
        with database.transaction() as other:
            other.exec_driver_sql("UPDATE worker_tasks SET status = 'pending', token = NULL")
            mine = thread.submit(settled, database, outcome(task))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            until(lambda: watching.exec_driver_sql(waiting).scalar_one(), "the settle to wait")
        assert mine.result() == set()
    assert rows(STATUS) == [("pending",)]


# -- again -------------------------------------------------------------------------------------------------------------


def test_a_retry_waits_for_its_time_and_counts(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(max_retries=3))
    settled(database, again(task, delay=30.0, error="ValueError: no"))
    columns = "status, waits_for, token, retry_count, tries, error_message, completed_at"
    assert rows(f"SELECT {columns}, scheduled_for - updated_at BETWEEN '29.9 s' AND '30.1 s' FROM worker_tasks") == [
        ("pending", "time", None, 1, 0, "ValueError: no", None, True)
    ]


def test_a_retry_may_change_the_arguments(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(args=[1], kwargs={"a": 1}))
    settled(database, again(task, args=[2], kwargs={"a": 2}))
    assert rows("SELECT args, kwargs FROM worker_tasks") == [([2], {"a": 2})]


STORED = """SELECT (SELECT array_agg(DISTINCT chunk_id) FROM {toast}), (SELECT sum(xmin::text::bigint) FROM {toast})"""


@pytest.mark.parametrize("kind", ["retry", "snooze"])
def test_arguments_that_stay_as_they_are_are_not_written_again(database: Database, rows: Rows, kind: str) -> None:
    """Of 200 kB each attempt wrote as many to the log of Postgres."""
    rows("ALTER TABLE tasks ALTER kwargs SET STORAGE EXTERNAL")
    (task,) = running(database, new_task(kwargs={"long": "x" * 200_000}))
    toast = rows.one(
        "SELECT CAST(reltoastrelid AS regclass)::text FROM pg_class WHERE oid = 'celeriac.tasks'::regclass"
    )
    stored = STORED.format(toast=toast)
    before = rows(stored)
    settled(database, again(task, kind=kind, delay=60.0))
    assert rows(stored) == before
    assert rows("SELECT status, length(kwargs ->> 'long') FROM worker_tasks") == [("pending", 200_000)]


def test_a_retry_at_an_instant_is_due_then(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    settled(database, again(task, delay=None, at="2031-05-01T10:00:00+02:00"))
    assert rows("SELECT scheduled_for = '2031-05-01T08:00:00Z' FROM worker_tasks") == [(True,)]


def test_a_round_starts_its_retries_anew(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(max_rounds=5))
    settled(database, again(task, kind="retry_round", retry_count=0, tries=1))
    assert rows("SELECT retry_count, tries FROM worker_tasks") == [(0, 1)]
    assert rows(EVENTS) == [("retry_round", "running", "pending")]


def test_a_snooze_burns_no_attempt(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    settled(database, again(task, kind="snooze", retry_count=0, delay=60.0))
    assert rows("SELECT status, waits_for, retry_count, tries, losses FROM worker_tasks") == [
        ("pending", "time", 0, 0, 0)
    ]
    assert rows(EVENTS) == [("snooze", "running", "pending")]


def test_a_retried_task_keeps_its_unique_key_and_runs_again_when_due(database: Database, put: Put) -> None:
    (task,) = running(database, new_task(unique_key="u"))
    settled(database, again(task))
    assert put(unique_key="u").is_new is False
    with database.transaction() as connection:
        promote.promote_due(connection, "work", 10)
    (second,) = started(database, *claimed(database))
    assert (second.id, second.retry_count) == (task.id, 1)
    assert second.token != task.token


# -- follow-ups --------------------------------------------------------------------------------------------------------


@pytest.fixture
def finish(app: Celeriac) -> Callable[..., None]:
    """Settles a run whose handler enqueued two follow-ups."""

    def settle_run(task: Any, keep: bool = True) -> None:
        follow_ups = [new_task("next", unique_key="n"), new_task("next")]
        run = Run(task, Role(name="work"), app.database)
        run.follow_ups, run.outcome = follow_ups, outcome(task, keep=keep)
        settler = app.settler
        settler.on_enqueued = lambda _: None
        settler.settle([run])
        assert run.settled

    return settle_run


@pytest.mark.parametrize("keep", [True, False])
def test_follow_ups_come_with_the_outcome(
    database: Database, finish: Callable[..., None], rows: Rows, keep: bool
) -> None:
    (task,) = running(database, new_task())
    finish(task, keep=keep)
    assert rows("SELECT count(*) FROM worker_tasks WHERE role = 'next'") == [(2,)]


def test_follow_ups_of_a_refused_outcome_do_not_come(
    database: Database, finish: Callable[..., None], rows: Rows
) -> None:
    (task,) = running(database, new_task())
    finish(task._replace(token=str(uuid.uuid4())))
    assert rows("SELECT count(*) FROM worker_tasks WHERE role = 'next'") == [(0,)]
    assert rows(STATUS) == [("running",)]


def test_an_outcome_whose_follow_ups_cannot_be_written_is_not_written(
    database: Database, finish: Callable[..., None], rows: Rows
) -> None:
    (task,) = running(database, new_task())
    rows("ALTER TABLE tasks ADD CONSTRAINT no_next CHECK (role <> 'next')")
    with pytest.raises(Exception, match="no_next"):
        finish(task)
    assert rows(STATUS) == [("running",)]
