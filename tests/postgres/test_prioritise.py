"""Prioritise: an unfinished task takes another place; nothing leaves its role's range."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.errors import BadArguments
from celeriac.run import start
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, claimed, enqueued, outcome, running, settle_in, settled
from tests.processes import Rows

PRIORITIES = "SELECT task_id, priority FROM worker_tasks ORDER BY priority DESC"
EVENTS = "SELECT kind, from_status, by, why FROM celeriac.task_events"


@pytest.fixture(autouse=True)
def role(app: Celeriac) -> None:
    @app.task(role="work", priority_range=(0, 100), shared=False)
    def work() -> None: ...


def test_a_waiting_task_is_claimed_in_its_new_order(app: Celeriac, database: Database, rows: Rows) -> None:
    first, last = enqueued(database, new_task(), new_task())
    assert app.prioritise(last.task_id, 60, by="somebody")
    assert rows(PRIORITIES) == [(last.task_id, 60), (first.task_id, 0)]
    assert rows(EVENTS) == [("priority", "pending", "somebody", "to 60")]
    ids, _ = claimed(database, n=2)
    assert list(ids) == [last.id, first.id]


@pytest.mark.parametrize(
    ("before", "asked", "only_raise", "after"),
    [(10, 60, True, 60), (60, 10, True, 60), (60, 60, True, 60), (60, 10, False, 10), (10, 60, False, 60)],
)
def test_only_raise_never_lowers(
    app: Celeriac, database: Database, rows: Rows, before: int, asked: int, only_raise: bool, after: int
) -> None:
    (task,) = enqueued(database, new_task(priority=before))
    assert app.prioritise(task.task_id, asked, only_raise=only_raise) is (before != after)
    assert rows(PRIORITIES) == [(task.task_id, after)]


def test_a_running_task_keeps_the_priority_for_its_next_attempt(app: Celeriac, database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    assert app.prioritise(task.task_id, 60)
    settled(database, outcome(task, "pending", delay=0.0))
    assert rows("SELECT status, priority FROM worker_tasks") == [("pending", 60)]


def test_a_finished_or_unknown_task_has_no_priority_to_change(app: Celeriac, database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    settled(database, outcome(task, "completed"))
    assert not app.prioritise(task.task_id, 60)
    assert not app.prioritise("no such task", 60)
    assert rows("SELECT priority FROM worker_tasks") == [(0,)]


@pytest.mark.parametrize("priority", [-1, 101])
def test_a_priority_outside_the_roles_range_is_refused(
    app: Celeriac, database: Database, rows: Rows, priority: Any
) -> None:
    (task,) = enqueued(database, new_task())
    with pytest.raises(BadArguments, match="from 0 to 100"):
        app.prioritise(task.task_id, priority)
    assert rows("SELECT priority FROM worker_tasks") == [(0,)]


def test_it_belongs_to_the_callers_transaction(app: Celeriac, database: Database, rows: Rows) -> None:
    (task,) = enqueued(database, new_task())
    with Session(app.database.engine) as session:
        assert app.prioritise(task.task_id, 60, session=session)
        session.rollback()
    assert rows("SELECT priority FROM worker_tasks") == [(0,)]


@pytest.mark.parametrize("held", [claimed, running])
def test_in_a_callers_transaction_it_leaves_alone_what_a_worker_would_wait_for(
    app: Celeriac, database: Database, rows: Rows, held: Any
) -> None:
    task = new_task(max_retries=3)
    if held is running:
        (begun,) = running(database, task)
    else:
        enqueued(database, task)
        ids, token = claimed(database)
    with Session(app.database.engine) as session:
        assert not app.prioritise(task.task_id, 60, session=session)
        with database.transaction(patience=0.5) as connection:
            if held is claimed:
                (begun,) = start.start(connection, "work", ids, token, worker_id="w", pid=1)
            assert settle_in(connection, again(begun)) == {begun.id}
    assert rows("SELECT status, priority FROM worker_tasks") == [("pending", 0)]


def test_one_that_waits_for_its_lock_or_its_time_is_raised_in_a_callers_transaction(
    app: Celeriac, database: Database, rows: Rows
) -> None:
    tasks = [new_task(delay=60.0), new_task(lock_key="k"), new_task(lock_key="k")]
    enqueued(database, *tasks)
    with Session(app.database.engine) as session, session.begin():
        assert all(app.prioritise(task.task_id, 60, session=session) for task in tasks)
    assert rows("SELECT DISTINCT priority FROM worker_tasks") == [(60,)]
