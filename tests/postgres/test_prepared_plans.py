"""A prepared statement keeps its plan for long: made on an idle queue, it has to hold when a backlog arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from celeriac.dispatch import room
from celeriac.dispatch.claim import fresh_token
from celeriac.roles.role import Role
from celeriac.run import start
from celeriac.settle import write
from celeriac.settle.outcome import Outcome, Started
from celeriac.store.connections import Database
from tests.postgres.backlog import TOKEN, analyze_while_idle, fill, tasks
from tests.processes import Rows

#: More than Postgres plans anew before it keeps one plan for all.
OFTEN = 12
BACKLOG = 20_000

#: Rows that one of them may look at.
FEW = 1_000

ME = {"worker_id": "w", "pid": 1}


def complete(connection: Connection, task: int, token: str) -> object:
    done = Started(task, "t", "", [], {}, None, 0, 0, 0, 1, 0, 0, None, None, None, None, False, "work", token)
    return write.settle(connection, [Outcome(task=done, status="completed", retry_count=0, tries=1)], by="w")


CALLS: dict[str, Callable[[Connection, int], object]] = {
    "start": lambda connection, _: start.start(connection, "work", [], fresh_token(), **ME),
    "start few": lambda connection, _: start.start_few(connection, "work", 4, fresh_token(), **ME),
    "complete": lambda connection, task: complete(connection, task, TOKEN),
    "work and room": lambda connection, _: room.work_and_room(connection, Role(name="work", window=13)),
}


def rows_read(connection: Connection, rows: Rows) -> int:
    """By all that has been executed so far, on this connection too."""
    connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
    return int(str(rows.one("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables")))


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("shape", ["one deep account", "many accounts", "behind many locks", "another role's"])
def test_its_plan_of_an_idle_queue_reads_no_backlog(
    database: Database, rows: Rows, shape: str, is_analyzed: bool
) -> None:
    with database.statement() as connection:
        if is_analyzed:
            analyze_while_idle(connection)
        for call in CALLS.values():
            for _ in range(OFTEN):
                call(connection, 1)
        backend: Any = connection.connection.dbapi_connection
        connection.exec_driver_sql("BEGIN")
        fill(connection, [shape], BACKLOG)
        connection.exec_driver_sql("COMMIT")
        task = connection.exec_driver_sql("SELECT id FROM celeriac.tasks WHERE task_id = 'ready-1'").scalar_one()
        read: dict[str, int] = {}
        for name, call in CALLS.items():
            before = rows_read(connection, rows)
            call(connection, task)
            read[name] = rows_read(connection, rows) - before
        assert {name: n for name, n in read.items() if n >= FEW} == {}
        assert connection.connection.dbapi_connection is backend


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_a_few_tasks_that_start_beside_anothers_backlog_read_none_of_it(
    database: Database, rows: Rows, is_analyzed: bool
) -> None:
    def started() -> int:
        return len(start.start_few(connection, "few", 4, fresh_token(), **ME) or [])

    rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('few', 0.001)")
    with database.statement() as connection:
        if is_analyzed:
            analyze_while_idle(connection)
            rows("INSERT INTO celeriac.batchers (role, seconds_per_task) VALUES ('few', 0.001) ON CONFLICT DO NOTHING")
        for _ in range(OFTEN):
            started()
        connection.exec_driver_sql("BEGIN")
        fill(connection, ["another role's"], BACKLOG)
        connection.exec_driver_sql("DELETE FROM celeriac.unparking")
        connection.exec_driver_sql(
            tasks("ready", "'few-' || i, 'few', 'f' || i, NULL, NULL, now() FROM generate_series(1, 3)")
        )
        connection.exec_driver_sql("COMMIT")
        before = rows_read(connection, rows)
        assert started() == 3
        assert rows_read(connection, rows) - before < FEW


@pytest.mark.parametrize("call", ["start", "start few", "work and room"])
def test_its_plan_is_kept_however_much_cheaper_one_for_these_values_seems(database: Database, call: str) -> None:
    with database.statement() as connection:
        connection.exec_driver_sql("BEGIN")
        fill(connection, ["many accounts"], BACKLOG)
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("ANALYZE celeriac.tasks, celeriac.ready, celeriac.tickets, celeriac.later")
        for _ in range(OFTEN):
            CALLS[call](connection, 1)
        made = connection.exec_driver_sql("SELECT generic_plans, custom_plans FROM pg_prepared_statements").all()
    assert [tuple(row) for row in made if any(row)] == [(OFTEN, 0)]
