"""A settle that waits for an operator's change finds the task as that change has left it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection

from celeriac.operate import cancel, prioritise
from celeriac.store.connections import Database
from celeriac.store.invariants import violations
from tests.postgres.conftest import new_task
from tests.postgres.stages import again, running, settled
from tests.processes import Rows, until

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def asks_to_stop(connection: Connection, task_id: str) -> None:
    cancel.cancel(connection, task_id, by="op", why="")


def raises(connection: Connection, task_id: str) -> None:
    held = prioritise.hold(connection, task_id)
    assert held
    prioritise.prioritise(connection, {held.id: 9}, by="op")


@pytest.mark.parametrize(
    ("steer", "left"),
    [(asks_to_stop, ("cancelled", 0, 1, None)), (raises, ("pending", 9, 1, [2]))],
)
def test_a_retry_that_waited_for_an_operator_is_whole(
    database: Database, rows: Rows, steer: Callable[[Connection, str], None], left: tuple[object, ...]
) -> None:
    (task,) = running(database, new_task(args=[1], max_retries=3))
    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as operator:
            steer(operator, task.task_id)
            retry = thread.submit(settled, database, again(task, delay=60.0, args=[2] if left[3] else None))
            until(lambda: rows.one(WAITING), "the settle to wait")
        assert retry.result() == {task.id}
    with database.statement() as connection:
        assert violations(connection) == []
    columns = "status, priority, retry_count, CASE status WHEN 'pending' THEN args END"
    assert rows(f"SELECT {columns} FROM worker_tasks") == [left]
