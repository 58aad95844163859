"""Rows and tables that somebody's open transaction holds: other work goes on, nothing is lost or runs twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
from sqlalchemy import create_engine, text

from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

Worker = Callable[..., Running]

ENDED = "SELECT count(*) FROM worker_tasks WHERE role = :role AND status = 'completed'"

BEGUN = "SELECT count(*) FROM ran WHERE role = 'slow' AND what = :what"


@contextmanager
def held(url: str, *statements: str) -> Iterator[None]:
    """An operator's psql, whose transaction stays open meanwhile."""
    engine = create_engine(url, connect_args={"application_name": "psql"})
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
            yield
    finally:
        engine.dispose()


RUNNING = {
    "its row": "UPDATE celeriac.worker_tasks SET priority = 7 WHERE status = 'running'",
    "its ticket": "SELECT FROM celeriac.tickets WHERE worker_id IS NOT NULL FOR UPDATE",
    "its task": "SELECT FROM celeriac.tasks WHERE role = 'slow' FOR UPDATE",
}


@pytest.mark.parametrize("what", RUNNING)
def test_a_running_tasks_row_is_settled_later_and_other_roles_go_on(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str, what: str
) -> None:
    running = worker("-c", "2")
    shop.slow.delay(1.5)
    shop.slow.delay(1.5)
    until(lambda: rows.one(BEGUN, what="begin") == 2, "both to run")
    with held(database_url, RUNNING[what]):
        until(lambda: rows.one(BEGUN, what="end") == 2, "both handlers to end")
        for n in range(20):
            shop.add.delay(n)
        until(
            lambda: rows.one(ENDED, role="add") == 20, "the other role's tasks to end, although both slots met the lock"
        )
        until(lambda: "pg_terminate_backend" in running.printed(), "the log to say who is in the way")
        assert rows.one(ENDED, role="slow") == 0
    until(lambda: rows.one(ENDED, role="slow") == 2, "what was held to be settled")
    assert rows.one(BEGUN, what="begin") == 2, "nothing ran twice"
    assert rows("SELECT DISTINCT losses FROM worker_tasks") == [(0,)]


@pytest.mark.usefixtures("alone")
def test_pending_rows_that_somebody_updates_stop_nobody(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str
) -> None:
    shop.add.bulk([{"a": n} for n in range(200)])
    with held(database_url, "UPDATE celeriac.worker_tasks SET priority = priority + 1 WHERE status = 'pending'"):
        worker("-c", "2")
        shop.flaky.bulk([{"fail": 0} for n in range(20)])
        more = [shop.add.delay(n).id for n in range(20)]
        until(lambda: rows.one(ENDED, role="flaky") == 20, "another role's tasks to end")
        ended = "SELECT count(*) FROM worker_tasks WHERE task_id = ANY (:ids) AND status = 'completed'"
        until(lambda: rows.one(ended, ids=more) == 20, "tasks of the same role that nobody holds to end")
    until(lambda: rows.one(ENDED, role="add") == 220, "the others to end")
    assert rows("SELECT DISTINCT losses FROM worker_tasks") == [(0,)]


def test_claimed_tickets_that_somebody_holds_start_later(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str
) -> None:
    worker("-c", "2")
    shop.slow.delay(1.0)
    shop.slow.delay(1.0)
    until(lambda: rows.one(BEGUN, what="begin") == 2, "both slots to be busy")
    for _ in range(3):
        shop.slow.delay(0.0)
    claimed = "SELECT count(*) FROM tickets WHERE worker_id IS NULL"
    until(lambda: rows.one(claimed) == 3, "the others to be claimed")
    with held(database_url, "SELECT FROM celeriac.tickets WHERE worker_id IS NULL FOR UPDATE"):
        for n in range(20):
            shop.add.delay(n)
        until(lambda: rows.one(ENDED, role="add") == 20, "the other role's tasks to end")
        assert rows.one(BEGUN, what="begin") == 2
    until(lambda: rows.one(ENDED, role="slow") == 5, "the held ones to run")
    assert rows.one(BEGUN, what="begin") == 5, "nothing ran twice"


@pytest.mark.parametrize(
    "table",
    [
        "tickets",
        "tasks",
        *(
            pytest.param(table, marks=pytest.mark.nightly("a lease long each; by day leases, and what is settled"))
            for table in ("ready", "workers", "account_policies", "history")
        ),
    ],
)
def test_after_a_table_was_locked_for_longer_than_a_lease_nothing_is_lost(
    shop: ModuleType, worker: Worker, rows: Rows, database_url: str, table: str
) -> None:
    worker("-c", "2")
    shop.slow.delay(1.5)
    until(lambda: rows.one(BEGUN, what="begin") == 1, "it to run")
    with held(database_url, f"LOCK TABLE celeriac.{table}", "SELECT pg_sleep(4.5)"):
        pass
    for n in range(5):
        shop.add.delay(n)
    until(lambda: rows.one(ENDED, role="slow") == 1 and rows.one(ENDED, role="add") == 5, "all to end")
    assert rows.one(BEGUN, what="begin") == 1, "nothing ran twice"
    assert rows("SELECT DISTINCT losses FROM worker_tasks") == [(0,)]
