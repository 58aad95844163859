"""Where Postgres ends a transaction of ours to break a deadlock, it is tried again, and nobody hears of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest
from sqlalchemy import Connection, make_url

from celeriac import Celeriac
from celeriac.api import app as api
from celeriac.enqueue.insert import enqueue
from celeriac.operate import steer
from celeriac.roles.role import Role
from celeriac.run.run import Run
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import enqueued, outcome, running
from tests.processes import Rows, until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture(autouse=True)
def who_waited_longest_is_ended(database: Database, database_url: str) -> None:
    """Ours: it waits first, and has Postgres look for a deadlock after a second; the other's after a minute."""
    with database.statement() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {make_url(database_url).database} SET deadlock_timeout = '1 s'")
    database.dispose()


@contextmanager
def patient(database: Database) -> Iterator[Connection]:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL deadlock_timeout = '1 min'")
        yield connection


def waits(rows: Rows) -> None:
    until(lambda: rows.one(WAITING) == 1, "ours to wait for the other")


@pytest.fixture(autouse=True)
def it_was_met(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO, "celeriac")
    yield
    assert any("Met a deadlock" in record.message for record in caplog.get_records("call"))


def test_a_bulk_finds_the_rows_of_the_one_it_met(app: Celeriac, rows: Rows) -> None:
    a, b = new_task(unique_key="a"), new_task(unique_key="b")
    with ThreadPoolExecutor(1) as beside, patient(app.database) as other:
        enqueue(other, [b])
        ours = beside.submit(app.enqueuer.insert, [new_task(unique_key="a"), new_task(unique_key="b")], None)
        waits(rows)
        enqueue(other, [a])
        other.commit()
        assert [(r.task_id, r.is_new) for r in ours.result() if r] == [(a.task_id, False), (b.task_id, False)]
    assert rows("SELECT task_id FROM worker_tasks ORDER BY unique_key") == [(a.task_id,), (b.task_id,)]


def test_an_outcome_is_written(app: Celeriac, database: Database, rows: Rows) -> None:
    """Ours has its ticket first, then its task; somebody who goes by no rule of ours, the other way round."""

    @app.task(role="work", shared=False)
    def work() -> None: ...

    (task,) = running(database, new_task())
    run = Run(task, Role(name="work"), database)
    run.outcome, run.follow_ups = outcome(task), [new_task(unique_key="after")]
    with ThreadPoolExecutor(1) as beside, patient(app.database) as other:
        other.exec_driver_sql("SELECT FROM celeriac.tasks FOR UPDATE")
        ours = beside.submit(app.settler.settle, [run])
        waits(rows)
        other.exec_driver_sql("SELECT FROM celeriac.tickets FOR UPDATE")
        other.commit()
        ours.result()
    states = rows("SELECT unique_key, status FROM worker_tasks ORDER BY id")
    assert states == [(None, "completed"), ("after", "pending")]
    assert rows("SELECT kind FROM task_events") == []


def test_a_request_is_answered(app: Celeriac, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PATIENCE", 60.0)
    asked = [new_task(unique_key="a"), new_task(unique_key="b")]
    with ThreadPoolExecutor(1) as beside, patient(app.database) as other:
        enqueue(other, [new_task(unique_key="b")])
        ours = beside.submit(api.write, app, lambda connection: enqueue(connection, asked))
        waits(rows)
        enqueue(other, [new_task(unique_key="a")])
        other.commit()
        assert [receipt.is_new for receipt in ours.result()] == [False, False]


def test_many_tasks_are_steered(app: Celeriac, database: Database, rows: Rows) -> None:
    """Somebody who goes by no rule of ours locks them the other way round."""
    first, second = (receipt.id for receipt in enqueued(database, new_task(), new_task()))
    lock = "SELECT FROM celeriac.tasks WHERE id = {} FOR UPDATE"
    with ThreadPoolExecutor(1) as beside, patient(app.database) as other:
        other.exec_driver_sql(lock.format(second))
        cancelled = steer.in_batches(database, [first, second], partial(steer.cancel, by="ann"))
        ours = beside.submit(list, cancelled)
        waits(rows)
        other.exec_driver_sql(lock.format(first))
        other.commit()
        (done,) = ours.result()
    assert [change.target for change in done.changed] == [str(first), str(second)]
    assert rows("SELECT status, count(*) FROM worker_tasks GROUP BY status") == [("cancelled", 2)]
