"""A run keeps its task by heartbeats and progress, and learns when it is to stop."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import celeriac
from celeriac.errors import LeaseLost
from celeriac.roles.role import Role
from celeriac.run import lease
from celeriac.run.run import Run
from celeriac.store import states
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.stages import PID, WORKER, again, outcome, running, settle_in, settled
from tests.processes import Rows, until


def test_a_heartbeat_renews_what_living_processes_run(database: Database, rows: Rows) -> None:
    running(database, new_task())
    (dead,) = running(database, new_task())
    rows("UPDATE tickets SET heartbeat_at = '2020-01-01'")
    rows("UPDATE tickets SET worker_pid = 2 WHERE token = CAST(:token AS uuid)", token=dead.token)
    with database.statement() as connection:
        assert lease.renew(connection, "another worker", [PID, 2]) == 0
        assert lease.renew(connection, WORKER, [PID]) == 1
    assert rows("SELECT last_heartbeat_at > '2021-01-01' FROM worker_tasks ORDER BY id") == [(True,), (False,)]


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
    others = Run(task._replace(token=str(uuid.uuid4())), Role(name="work"), database)
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


def test_a_worker_counts_as_gone_after_the_same_silence_in_sql_and_in_python(rows: Rows) -> None:
    heard = "SELECT celeriac.is_heard(statement_timestamp() - :seconds * interval '1 second')"
    assert rows(heard, seconds=states.GONE - 1) == [(True,)]
    assert rows(heard, seconds=states.GONE) == [(False,)]
    assert rows("SELECT celeriac.is_heard(NULL)") == [(None,)]


def test_how_long_a_worker_may_be_silent_is_written_once() -> None:
    """Every other place calls `is_heard` or reads `states.GONE`."""
    engine = Path(celeriac.__file__).parent
    paths = [path for path in engine.rglob("*.*") if path.suffix in (".py", ".sql") and "versions" not in path.parts]
    places = re.compile(r"last_heartbeat_at\s*[<>]=?\s*\w+\(\)\s*-\s*interval '(?:2 minutes|120)")
    assert [path.name for path in paths if places.search(path.read_text())] == ["leases.sql"]
