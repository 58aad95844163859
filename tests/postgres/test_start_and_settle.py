"""Fencing: a task starts for whoever has its token, once; and only that run settles it."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from celeriac import Celeriac
from celeriac.dispatch import promote
from celeriac.enqueue.insert import Receipt
from celeriac.errors import LeaseLost
from celeriac.repair import rescue
from celeriac.roles.role import Role
from celeriac.run import lease, shared
from celeriac.run.arrive import run_ticket
from celeriac.run.run import Run
from celeriac.settle import write
from celeriac.store.connections import Database
from celeriac.worker import lifeline
from celeriac.worker.lifeline import Lifeline
from tests.postgres.conftest import new_task
from tests.postgres.stages import PID, WORKER, again, claimed, outcome, running, settle_in, settled, started
from tests.processes import Rows, until

Put = Callable[..., Receipt]

EVENTS = "SELECT kind, from_status, to_status FROM task_events ORDER BY id"
STATUS = "SELECT status FROM worker_tasks ORDER BY id"
ALL = "SELECT to_jsonb(t) FROM worker_tasks t ORDER BY id"


# -- start -------------------------------------------------------------------------------------------------------------


def test_a_start_says_who_runs_it_and_since_when(database: Database, put: Put, rows: Rows) -> None:
    put()
    (task,) = started(database, *claimed(database))
    since = "last_heartbeat_at - started_at < '1 s', now() - started_at < '10 s'"
    assert rows(f"SELECT status, worker_id, worker_pid, token::text, {since} FROM worker_tasks") == [
        ("running", WORKER, PID, task.token, True, True)
    ]


def test_a_task_has_its_time_limit_from_when_it_begins_its_own_before_its_roles(database: Database) -> None:
    own, roles = running(database, new_task(timeout=60.0), new_task())
    limited = Role(name="work", timeout=30.0, hard_timeout=40.0)
    before = Run(own, limited, database), Run(roles, limited, database), Run(roles, Role(name="work"), database)
    assert [run.left and round(run.left) for run in before] == [60, 30, None]
    assert [round(run.grace(5.0)) for run in before] == [5, 10, 5], "until its process is stopped"


def test_a_role_of_another_name_starts_nothing(database: Database, put: Put, rows: Rows) -> None:
    put()
    ids, token = claimed(database)
    before = rows(ALL)
    assert started(database, ids, token, role="other") == []
    assert rows(ALL) == before


def test_a_wrong_token_starts_nothing(database: Database, put: Put, rows: Rows) -> None:
    put()
    ids, _ = claimed(database)
    before = rows(ALL)
    assert started(database, ids, str(uuid.uuid4())) == []
    assert rows(ALL) == before


def test_a_ticket_starts_its_tasks_once(database: Database, put: Put, rows: Rows) -> None:
    put()
    ticket = claimed(database)
    assert len(started(database, *ticket)) == 1
    before = rows(ALL)
    assert started(database, *ticket, pid=2) == []
    assert rows(ALL) == before


def test_a_ticket_starts_its_tasks_in_its_order_and_not_what_it_never_had(
    database: Database, put: Put, rows: Rows
) -> None:
    receipts = [put(priority=n) for n in range(3)]
    other = put()
    ids, token = claimed(database, n=3)
    assert ids == [r.id for r in reversed(receipts)]
    assert [task.id for task in started(database, [*ids, other.id, ids[0], 999_999], token)] == ids
    assert rows("SELECT status FROM worker_tasks WHERE id = :i", i=other.id) == [("pending",)]


@pytest.mark.parametrize("state", ["status = 'pending', token = NULL", "status = 'cancelled', completed_at = now()"])
def test_a_late_ticket_starts_nothing(database: Database, put: Put, rows: Rows, state: str) -> None:
    put()
    ticket = claimed(database)
    rows(f"UPDATE worker_tasks SET {state}")
    assert started(database, *ticket) == []


def test_a_task_past_its_expiry_is_cancelled_instead_of_run(
    app: Celeriac, database: Database, put: Put, rows: Rows
) -> None:
    ran = []

    @app.task(role="work", shared=False, prompt=False)
    def work(n: int) -> None:
        ran.append(n)

    put(kwargs={"n": 1}, expires_in=-1.0, lock_key="k")
    put(kwargs={"n": 2}, expires_in=1000.0)
    put(kwargs={"n": 3}, lock_key="k")
    run_ticket(app, "work", *claimed(database, n=2))
    assert ran == [2]
    assert rows(STATUS) == [("cancelled",), ("completed",), ("pending",)]
    assert rows("SELECT waits_for FROM worker_tasks WHERE status = 'pending'") == [(None,)], "it leads their lock now"
    assert rows(EVENTS) == [("expired", "running", "cancelled")]


def test_a_start_tells_which_of_its_tasks_have_expired(database: Database, put: Put) -> None:
    for seconds in (-1.0, 1000.0, None):
        put(expires_in=seconds)
    assert [task.expired for task in started(database, *claimed(database, n=3))] == [True, False, None]


# -- settle ------------------------------------------------------------------------------------------------------------


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
    assert settled(database, outcome(dataclasses.replace(task, token=str(uuid.uuid4())))) == set()
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


@pytest.mark.parametrize("said", [{"keep": False}, {"status": "pending", "delay": 0.0}], ids=["deleted", "again"])
def test_what_is_settled_again_after_a_lost_answer_is_no_late_finish(
    database: Database, rows: Rows, said: dict[str, Any]
) -> None:
    (task,) = running(database, new_task())
    mine = outcome(task, **said)
    settled(database, mine)
    with database.transaction() as connection:
        assert write.settle(connection, [mine], "test", again=True) == set()
    assert rows(EVENTS) == []


def test_of_many_outcomes_only_the_late_one_is_refused(database: Database, rows: Rows) -> None:
    late, task = running(database, new_task(), new_task())
    rows(f"UPDATE worker_tasks SET status = 'pending', token = NULL WHERE id = {late.id}")
    assert settled(database, outcome(late), outcome(task)) == {task.id}
    assert rows(STATUS) == [("pending",), ("completed",)]
    assert rows(EVENTS) == [("late_finish", "pending", "pending")]


def test_settling_again_after_a_lost_answer_changes_nothing_and_is_no_late_finish(
    database: Database, rows: Rows
) -> None:
    (task,) = running(database, new_task())
    settled(database, outcome(task, result=1))
    before = rows(ALL)
    with database.transaction() as connection:
        assert write.settle(connection, [outcome(task, result=1)], "test", again=True) == set()
    assert rows(ALL) == before
    assert rows(EVENTS) == []


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
        run = Run(task, Role(name="work"), app.database, follow_ups=follow_ups, outcome=outcome(task, keep=keep))
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
    finish(dataclasses.replace(task, token=str(uuid.uuid4())))
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


# -- heartbeat ---------------------------------------------------------------------------------------------------------


def test_a_heartbeat_renews_what_living_processes_run(database: Database, rows: Rows) -> None:
    running(database, new_task())
    (dead,) = running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = '2020-01-01'")
    rows("UPDATE tickets SET worker_pid = 2 WHERE token = CAST(:token AS uuid)", token=dead.token)
    with database.statement() as connection:
        assert lease.renew(connection, "another worker", [PID, 2]) == 0
        assert lease.renew(connection, WORKER, [PID]) == 1
    assert rows("SELECT last_heartbeat_at > '2021-01-01' FROM worker_tasks ORDER BY id") == [(True,), (False,)]


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were killed, had they not been this one."""
    killed: list[int] = []
    monkeypatch.setattr(lifeline, "_kill", killed.append)
    yield killed
    shared.limit(0, 0.0)


def test_what_is_past_its_deadline_and_the_grace_is_stopped_and_counts_as_timed_out(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int]
) -> None:
    @app.task(role="work", shared=False, max_retries=0)
    def work() -> None: ...

    late, other = running(database, new_task(max_retries=0), new_task())
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    shared.limit(late.id, time.monotonic() + 60)
    parent.stop_overdue()
    assert (stopped, rows(STATUS)) == ([], [("running",), ("running",)])
    assert 50 < parent.next_limit - time.monotonic() <= 60, "then it looks again"
    shared.limit(late.id, time.monotonic())
    parent.stop_overdue()
    parent.database.dispose()
    assert stopped == [os.getpid()]
    assert rows("SELECT status, starts_with(error_message, 'TimeLimitExceeded') FROM worker_tasks ORDER BY id") == [
        ("failed", True), ("running", None)
    ]  # fmt: skip
    assert rows("SELECT ids FROM tickets") == [([other.id],)], "the lost process's rows are released as such"


@pytest.mark.parametrize("meanwhile", ["another task", "none under a limit", "another run of it"])
def test_who_has_ended_its_task_in_time_is_not_stopped(
    app: Celeriac, database: Database, rows: Rows, stopped: list[int], meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent read the limit, and the child got on before the parent had its task's row."""

    @app.task(role="work", shared=False)
    def work() -> None: ...

    first, second = running(database, new_task(), new_task())
    rows("UPDATE tickets SET worker_id = :w, worker_pid = :p", w=shared.worker_id(), p=os.getpid())
    parent = Lifeline(app, SimpleNamespace(pool=None, concurrency=1))
    shared.limit(first.id, time.monotonic())
    real = lease.running

    def read(*given: Any) -> Any:
        shared.limit(*{
            "another task": (second.id, time.monotonic()),
            "none under a limit": (0, 0.0),
            "another run of it": (first.id, time.monotonic() + 60),
        }[meanwhile])  # fmt: skip
        return real(*given)

    monkeypatch.setattr(lease, "running", read)
    parent.stop_overdue()
    parent.database.dispose()
    assert (stopped, rows(STATUS)) == ([], [("running",), ("running",)])


def test_a_heartbeat_never_waits_for_a_settle(database: Database, rows: Rows) -> None:
    """It would, with other tickets in hand for which the settle may be waiting: a deadlock."""
    tasks = [running(database, new_task())[0] for _ in range(3)]
    held = sorted(task.token for task in tasks)[1]
    rows("UPDATE tickets SET heartbeat_at = '2020-01-01'")
    with ThreadPoolExecutor(1) as thread, database.statement() as watching:
        with database.transaction() as other:
            other.exec_driver_sql(f"SELECT FROM celeriac.tickets WHERE token = '{held}' FOR UPDATE")
            mine = thread.submit(settled, database, *(again(task) for task in tasks))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            until(lambda: watching.exec_driver_sql(waiting).scalar_one(), "the settle to wait")
            with database.transaction() as connection:
                connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
                assert lease.renew(connection, WORKER, [PID]) == 1
                renewed = "SELECT CAST(token AS text) FROM celeriac.tickets WHERE heartbeat_at > '2021-01-01'"
                assert connection.exec_driver_sql(renewed).scalar_one() > held, "what the settle has not come to"
        assert mine.result() == {task.id for task in tasks}


def test_progress_renews_and_prolongs_for_the_runs_own_token_only(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(timeout=10.0))
    rows("UPDATE tickets SET heartbeat_at = '2020-01-01'")
    others = Run(dataclasses.replace(task, token=str(uuid.uuid4())), Role(name="work"), database)
    mine = Run(task, Role(name="work"), database)
    told: list[Run] = []
    for run in (others, mine):
        run.limited_since -= 9.0
        run.on_limit = told.append
    with pytest.raises(LeaseLost):
        others.progress({"done": 1})
    assert rows("SELECT progress, last_heartbeat_at > '2021-01-01' FROM worker_tasks") == [(None, False)]
    mine.progress({"done": 1})
    assert rows("SELECT progress, last_heartbeat_at > '2021-01-01' FROM worker_tasks") == [({"done": 1}, True)]
    assert [round(run.left or 0) for run in (others, mine)] == [1, 10]
    assert told == [mine], "its parent hears of it"


def test_a_run_learns_that_it_is_to_stop(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task(timeout=100.0))
    with database.statement() as connection:
        assert lease.is_cancelled(connection, task.id, task.token) is False
        assert lease.is_cancelled(connection, task.id, str(uuid.uuid4())) is None
        rows("UPDATE tasks SET cancel_requested_at = now()")
        assert lease.is_cancelled(connection, task.id, task.token) is True
        settle_in(connection, outcome(task))
        assert lease.is_cancelled(connection, task.id, task.token) is None
