"""The driver's own cursor tells its errors as everything else does, and outlives a lost connection."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from celeriac.database import Database, is_gone

EVERY_BACKEND_ENDS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()
"""


def one(database: Database, statement: str) -> object:
    with database.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_an_error_of_the_statement_is_sqlalchemys(database: Database) -> None:
    with pytest.raises(IntegrityError) as refused:
        one(database, "INSERT INTO worker_tasks (task_id, role) VALUES ('a', NULL)")
    assert not is_gone(refused.value)
    assert one(database, "SELECT 1") == 1


def test_a_connection_that_is_lost_takes_the_idle_ones_with_it(database: Database) -> None:
    with database.cursor(), database.cursor():
        """Two connections, now idle in the pool."""
    with pytest.raises(OperationalError) as lost:
        one(database, EVERY_BACKEND_ENDS)
    assert is_gone(lost.value)
    assert one(database, "SELECT 1") == 1
