"""A transaction of ours whose process is frozen holds nothing for long: what it has locked could not be rescued."""

from __future__ import annotations

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celeriac import Celeriac
from celeriac.enqueue.insert import enqueue
from celeriac.errors import LeaseLost
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.store import connections as module
from celeriac.store.connections import Database
from celeriac.store.failures import is_gone
from tests.postgres.conftest import new_task
from tests.postgres.stages import outcome, running
from tests.processes import Rows, until

FREE = "SELECT id FROM tasks FOR UPDATE SKIP LOCKED"


@pytest.fixture(autouse=True)
def a_short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE", 0.3)


def test_a_silent_transaction_is_ended_and_its_locks_are_free(database: Database, rows: Rows) -> None:
    with database.transaction() as connection:
        (task,) = enqueue(connection, [new_task()])

    def freeze() -> None:
        with database.transaction() as connection:
            connection.exec_driver_sql("SELECT FROM celeriac.tasks FOR UPDATE")
            assert rows(FREE) == []
            until(lambda: rows(FREE) == [(task.id,)], "the row to be free")
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(DBAPIError) as ended:
        freeze()
    assert is_gone(ended.value), "so whoever may tries again"
    with database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_so_is_a_handlers_while_its_outcome_is_written(app: Celeriac, database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    run = Run(task, Role(name="work"), database)

    def frozen(_: Session) -> None:
        assert rows(FREE) == [], "the outcome is written"
        until(lambda: rows(FREE) == [(task.id,)], "the row to be free")

    session = run.session
    event.listen(session, "before_commit", frozen)
    run.outcome = outcome(task)
    with pytest.raises(LeaseLost):
        app.settler.settle_with_session(run, session)
    assert rows("SELECT id, status, losses FROM worker_tasks") == [(task.id, "pending", 1)]
