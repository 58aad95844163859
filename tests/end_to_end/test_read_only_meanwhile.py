"""Postgres takes no writes for a while, as after a failover that leads to a standby, or while a host has no disk left:
work waits and goes on by itself, and no task fails for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType

from sqlalchemy import Connection, make_url

from tests.end_to_end.kept import alone, database_url, kept, redis_url, worker
from tests.processes import Rows, Running, until

__all__ = ["alone", "database_url", "kept", "redis_url", "worker"]

BY_STATE = "SELECT DISTINCT role, status, retry_count FROM celeriac.worker_tasks ORDER BY role"
BEGUN = "SELECT count(*) FROM ran WHERE what = 'begin'"
ENDS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'celeriac%%'"""


@contextlib.contextmanager
def read_only(rows: Rows, url: str) -> Iterator[Connection]:
    """Every session that begins meanwhile is read-only for as long as it lasts, and the others end."""
    name = make_url(url).database
    with rows.engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        connection.exec_driver_sql(ENDS)
        try:
            yield connection
        finally:
            connection.exec_driver_sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")


REFUSED = "in a read-only transaction"


def test_what_waits_and_what_runs_goes_on_once_writes_are_taken(
    shop: ModuleType, worker: Callable[..., Running], rows: Rows, database_url: str
) -> None:
    running = worker("-c", "2")
    shop.slow.delay(1.0)
    shop.writing.delay(1.0)
    until(lambda: rows.one(BEGUN) == 2, "both to run")
    shop.slow.bulk([{"seconds": 0.0} for _ in range(5)])
    shop.writing.bulk([{"seconds": 0.0} for _ in range(5)])
    with read_only(rows, database_url):
        until(lambda: running.printed().count(REFUSED) > 1, "the worker to be refused")
    until(lambda: rows.one("SELECT count(*) FROM tasks") == 0, "all to end")
    assert rows(BY_STATE) == [("slow", "completed", 0), ("writing", "completed", 0)]
    assert running.process.poll() is None
