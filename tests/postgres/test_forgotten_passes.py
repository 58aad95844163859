"""A crash of Postgres may forget a pass, and nothing that runs: see decision 35."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celeriac import local
from celeriac.dispatch.claim import Holder, fresh_token
from celeriac.dispatch.passes import Dispatcher, Own
from celeriac.run.start import own, start
from celeriac.store.connections import Database
from celeriac.store.migrate import migrate
from tests.postgres.conftest import new_task
from tests.postgres.passes import ROLE, role
from tests.postgres.stages import PID, WORKER, enqueued
from tests.processes import Rows

TASKS = 10

PROMPT = role(prompt=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[local.PostgresServer]:
    """Nothing flushes there but who waits for it: its WAL writer sleeps."""
    server = local.PostgresServer(tmp_path / "postgres")
    server.start()
    rows = Rows(server.url)
    migrate(rows.engine)
    rows("ALTER SYSTEM SET wal_writer_delay = '10s'")
    rows("SELECT pg_reload_conf()")
    rows.close()
    yield server
    server.stop()


@pytest.fixture
def own_database(server: local.PostgresServer) -> Iterator[Database]:
    database = Database(server.url)
    yield database
    database.dispose()


def counted(database: Database) -> tuple[int, int]:
    """What is ready, and what tickets hold."""
    with database.statement() as connection:
        ready = connection.exec_driver_sql("SELECT count(*) FROM celeriac.ready").scalar_one()
        held = connection.exec_driver_sql("SELECT coalesce(sum(cardinality(ids)), 0) FROM celeriac.tickets")
        return ready, held.scalar_one()


def test_the_tasks_of_a_pass_that_a_crash_forgot_are_ready_again(
    server: local.PostgresServer, own_database: Database, publisher: Any
) -> None:
    enqueued(own_database, *(new_task() for _ in range(TASKS)))
    dispatcher = Dispatcher(own_database, publisher, "test")
    published = dispatcher.run_pass(PROMPT).tickets
    assert counted(own_database) == (0, TASKS)
    server.kill()
    own_database.dispose()
    server.start()
    assert counted(own_database) == (TASKS, 0)
    with own_database.statement() as connection:
        assert [start(connection, "work", t.ids, t.token, worker_id=WORKER, pid=PID) for t in published] == [[]] * TASKS
    assert len(dispatcher.run_pass(PROMPT).tickets) == TASKS


def test_what_has_started_is_remembered_and_its_pass_with_it(
    server: local.PostgresServer, own_database: Database, publisher: Any
) -> None:
    enqueued(own_database, *(new_task() for _ in range(TASKS)))
    published = Dispatcher(own_database, publisher, "test").run_pass(PROMPT).tickets
    with own_database.statement() as connection:
        (mine,) = start(connection, "work", published[0].ids, published[0].token, worker_id=WORKER, pid=PID)
    server.kill()
    own_database.dispose()
    server.start()
    assert counted(own_database) == (0, TASKS)
    with own_database.statement() as connection:
        started = connection.exec_driver_sql("SELECT ids FROM celeriac.tickets WHERE worker_id IS NOT NULL").scalars()
        assert started.all() == [[mine.id]]


def test_a_pass_that_starts_its_first_ticket_is_remembered(
    server: local.PostgresServer, own_database: Database, publisher: Any
) -> None:
    enqueued(own_database, *(new_task() for _ in range(TASKS)))
    token = fresh_token()
    mine = Own(Holder(WORKER, PID), token, lambda connection, held: own(connection, "work", held.ids, token))
    assert len(Dispatcher(own_database, publisher, "test").run_pass(PROMPT, mine).started) == 1
    server.kill()
    own_database.dispose()
    server.start()
    assert counted(own_database) == (0, TASKS)


def test_the_pass_of_a_role_that_nobody_looks_at_between_passes_is_remembered(
    server: local.PostgresServer, own_database: Database, publisher: Any
) -> None:
    enqueued(own_database, *(new_task() for _ in range(TASKS)))
    assert len(Dispatcher(own_database, publisher, "test").run_pass(ROLE).tickets) == TASKS
    server.kill()
    own_database.dispose()
    server.start()
    assert counted(own_database) == (0, TASKS)
