"""The queries the seed's operators know run as they stand, or as `docs/monitoring.md` gives them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from celeriac import Celeriac
from celeriac.local.account import Account
from celeriac.local.wheels import postgres_programs
from celeriac.repair import rescue
from celeriac.store.connections import Database
from tests import quoted
from tests.deploy.written import of
from tests.operations import LIMIT
from tests.postgres.backlog import tasks
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, registered
from tests.postgres.stages import WORKER, claimed, enqueued, looked, running, started
from tests.processes import Rows

HEALTH = quoted.statement("MAX(last_heartbeat_at)")
BY_STATUS = quoted.statement("GROUP BY status;")
BY_ROLE = quoted.statement("GROUP BY role, status;")
DURATION = quoted.statement("as avg_seconds")


def documented(beginning: str) -> str:
    """The block of docs/monitoring.md that begins so, with the limit of its waits as it is written there."""
    blocks = of("docs/monitoring.md", "sql")
    (block,) = [block for block in blocks if block.text.removeprefix(f"{LIMIT}\n").startswith(beginning)]
    return block.text


def test_the_health_check(database: Database, rows: Rows) -> None:
    running(database, new_task(), new_task())
    finished(rows, ago=6)
    assert [row[:3] for row in rows(HEALTH)] == [(WORKER, "work", 2)]


def test_the_metrics(database: Database, rows: Rows) -> None:
    running(database, new_task())
    finished(rows, n=2, seconds=4)
    finished(rows, n=1, seconds=100, ago=25 * 60)
    assert sorted(rows(BY_STATUS)) == [("completed", 3), ("running", 1)]
    assert sorted(rows(BY_ROLE)) == [("work", "completed", 3), ("work", "running", 1)]
    assert [(role, float(seconds)) for role, seconds in rows(DURATION)] == [("work", pytest.approx(4))]


def test_the_failed_tasks(database: Database, rows: Rows) -> None:
    finished(rows, status="failed")
    rows("""UPDATE worker_tasks SET kwargs = '{"dispensary_id": 7}'""")
    ((_, role, dispensary, error, retries),) = rows(documented("SELECT id, role, kwargs"))
    assert (role, dispensary, error, retries) == ("work", "7", "why", 0)


def test_retrying_failed_tasks(database: Database, rows: Rows) -> None:
    """Those with retries left run again, one of a unique key, behind the head of their lock."""
    finished(rows, status="failed", n=4, retry_count=1)
    finished(rows, status="failed", retry_count=3)
    rows("UPDATE worker_tasks SET unique_key = 'u' WHERE id IN (1, 2)")
    rows("UPDATE worker_tasks SET lock_key = 'k' WHERE id = 3")
    enqueued(database, new_task(lock_key="k"))
    rows(documented("UPDATE worker_tasks t"))
    assert rows("SELECT id, status, waits_for, retry_count FROM worker_tasks WHERE id <= 5 ORDER BY id") == [
        (1, "failed", None, 1), (2, "pending", "time", 2), (3, "pending", "time", 2), (4, "pending", "time", 2),
        (5, "failed", None, 3),
    ]  # fmt: skip
    rows(documented("UPDATE worker_tasks t"))
    assert rows("SELECT count(*) FROM worker_tasks WHERE status = 'failed'") == [(2,)]


def test_retrying_failed_tasks_as_the_document_writes_it(rows: Rows) -> None:
    finished(rows, status="failed", retry_count=1)
    finished(rows, status="failed", retry_count=3)
    rows(documented("UPDATE worker_tasks SET"))
    assert rows("SELECT status, retry_count FROM worker_tasks ORDER BY id") == [("pending", 2), ("failed", 3)]
    finished(rows, status="failed", n=2, retry_count=1)
    rows("UPDATE worker_tasks SET unique_key = 'u' WHERE id > 2")
    with pytest.raises(DBAPIError, match="duplicate key"):
        rows(documented("UPDATE worker_tasks SET"))


def test_the_view_and_the_function_work_in_psql(database_url: str, rows: Rows) -> None:
    registered(rows, "work")
    url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    asks = ["-c", "SELECT * FROM v_worker_capacity", "-c", "SELECT recover_stale_tasks(10)"]
    psql = postgres_programs(Account.for_servers()) / "psql"
    told = subprocess.run([psql, "-XAt", *asks, url], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["work|0|0|0|0|0|0|0|||", "0"]


# -- recover_stale_tasks -----------------------------------------------------------------------------------------------

SILENT = "UPDATE worker_tasks SET last_heartbeat_at = now() - :m * interval '1 minute' WHERE status = 'running'"
STATE = "SELECT status, token, losses, error_message, completed_at IS NULL, waits_for FROM worker_tasks ORDER BY id"
EVENTS = "SELECT kind, from_status, to_status, why FROM task_events ORDER BY task, id"


def test_recovering_frees_what_silent_workers_hold(database: Database, rows: Rows) -> None:
    running(database, new_task(), new_task())
    rows(SILENT, m=11)
    running(database, new_task())
    assert rows("SELECT recover_stale_tasks(12)") == [(0,)]
    assert rows("SELECT recover_stale_tasks(10)") == [(2,)]
    assert rows("SELECT status, losses FROM worker_tasks ORDER BY id") == [
        ("pending", 1), ("pending", 1), ("running", 0)
    ]  # fmt: skip
    assert rows("SELECT recover_stale_tasks()") == [(0,)]


def test_recovering_works_in_batches(rows: Rows) -> None:
    silent = "'silent-' || i, 'work', '', NULL, NULL, now() FROM generate_series(1, 1001)"
    rows(tasks("a silent ticket each", silent))
    assert rows("SELECT recover_stale_tasks(10)") == [(1001,)]


def test_a_threshold_that_would_take_everything_is_refused(rows: Rows) -> None:
    with pytest.raises(Exception, match="give minutes above 0"):
        rows("SELECT recover_stale_tasks(0)")


def lost(database: Database, rows: Rows) -> None:
    """One lost for the first time, one too often, one that was asked to stop; two wait for the others' locks."""
    for options in ({}, {"lock_key": "a"}, {"lock_key": "b"}):
        running(database, new_task(**options))
    enqueued(database, new_task(lock_key="a"), new_task(lock_key="b"))
    rows("UPDATE worker_tasks SET losses = 2 WHERE id = 2")
    rows("UPDATE worker_tasks SET cancel_requested_at = now() WHERE id = 3")
    rows(SILENT, m=11)


def test_recovering_and_the_rescue_sweep_go_by_the_same_rules(
    app: Celeriac, database: Database, rows: Rows, clone: Callable[[], str]
) -> None:
    lost(database, rows)
    there = Database(clone())
    others = Rows(there.url)
    lost(there, others)
    assert rescue.rescue(app) == 3
    assert others("SELECT recover_stale_tasks(10)") == [(3,)]
    looked(there)
    assert rows(STATE) == others(STATE)
    assert rows(EVENTS) == others(EVENTS)
    assert [row[0] for row in rows(STATE)] == ["pending", "failed", "cancelled", "pending", "pending"]
    assert [row[-1] for row in rows(STATE)] == [None] * 5
    others.close()
    there.dispose()


def test_what_was_recovered_is_started_again(database: Database, rows: Rows) -> None:
    (task,) = running(database, new_task())
    rows(SILENT, m=11)
    rows("SELECT recover_stale_tasks(10)")
    assert [t.id for t in started(database, *claimed(database))] == [task.id]
