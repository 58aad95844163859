"""The driver's own cursor tells its errors as everything else does, and outlives a lost connection."""

from __future__ import annotations

import gc
import json
import os
import signal
import weakref
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DataError, IntegrityError, OperationalError

from celeriac.store.connections import Database
from celeriac.store.failures import is_gone
from celeriac.store.prepared import Prepared
from tests.processes import Rows, until

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


def test_nor_does_it_leave_the_one_that_stays_out_of_the_pool(database: Database) -> None:
    """As nobody may hear that it is dead, where the server's host is."""
    spare = []

    def lose_one() -> None:
        with database.cursor() as lost:
            spare.append(one(database, "SELECT pg_backend_pid()"))
            lost.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(OperationalError):
        lose_one()
    assert one(database, "SELECT pg_backend_pid()") not in spare
    assert len(database.open_connections()) == 1


@pytest.fixture
def all_end(rows: Rows) -> Callable[[], None]:
    """Ends every other connection to the database, as a restart does."""

    def end() -> None:
        assert rows(f"{EVERY_BACKEND_ENDS} AND pid <> pg_backend_pid()") != [(0,)]
        left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        until(lambda: rows.one(left) == 0, "them to end")

    return end


def test_a_connection_that_died_while_it_was_idle_is_not_used(database: Database, all_end: Callable[[], None]) -> None:
    """Nothing was said on it, so nothing can have been done: no error of the caller's."""
    for _ in range(2):
        with database.cursor(), database.cursor(), database.cursor():
            """Three connections, now idle in the pool."""
        all_end()
        assert one(database, "SELECT 1") == 1
    all_end()
    with database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    all_end()
    with database.statement() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


BACKEND = "SELECT pg_backend_pid()"


def test_one_connection_stays_out_of_the_pool_for_the_next_cursor(database: Database) -> None:
    first = one(database, BACKEND)
    assert {one(database, BACKEND) for _ in range(3)} == {first}
    with database.statement() as connection:
        assert connection.exec_driver_sql(BACKEND).scalar_one() != first
    with database.cursor() as taken:
        taken.execute(BACKEND)
        assert taken.fetchone()[0] == first
        assert one(database, BACKEND) != first
    assert len(database.open_connections()) == 2
    database.dispose()
    assert database.open_connections() == []


def test_a_forked_child_speaks_on_a_connection_of_its_own(database: Database) -> None:
    """Nor does it end its parent's, which it inherits."""
    parents = one(database, BACKEND)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, str(one(database, BACKEND)).encode())
        os._exit(0)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.read(reading, 20).decode() not in ("", str(parents))
    os.close(reading)
    assert one(database, BACKEND) == parents


def test_a_forked_child_ends_no_connection_of_a_full_pool(database: Database) -> None:
    """Six threads were busy at once: five connections are idle in the pool, and one beside it."""
    with ExitStack() as busy:
        cursors = [busy.enter_context(database.cursor()) for _ in range(6)]
        for cursor in cursors:
            cursor.execute(BACKEND)
    before = one(database, BACKEND)
    if (child := os.fork()) == 0:
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert one(database, BACKEND) == before


def test_a_loss_the_pool_notices_takes_the_one_out_of_it_too(database: Database) -> None:
    spare = one(database, BACKEND)
    with pytest.raises(OperationalError), database.statement() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
    assert one(database, BACKEND) != spare


def test_what_was_in_use_while_all_were_closed_is_kept_by_nobody(database: Database) -> None:
    with database.cursor() as cursor:
        one(database, BACKEND)
        database.dispose()
        cursor.execute("SELECT 1")
    assert one(database, BACKEND)
    database.dispose()
    assert database.open_connections() == []


def test_a_database_nobody_has_any_more_leaves_no_connection(database: Database) -> None:
    another = Database(database.url)
    assert one(another, BACKEND)
    gone = weakref.ref(another)
    del another
    gc.collect()
    assert gone() is None


def test_a_signal_that_enqueues_waits_for_nobody(database: Database) -> None:
    """As what it interrupts may be about to give its connection back."""
    came: list[object] = []
    before = signal.signal(signal.SIGALRM, lambda *_: came.append(one(database, "SELECT 1")))
    try:
        for n in range(500):
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + n))
            one(database, "SELECT 1")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(came) == {1}


@pytest.fixture
def sums() -> Prepared:
    return Prepared(text("SELECT :a + :b"), {"a": "integer", "b": "integer"})


def added(database: Database, prepared: Prepared, a: int, b: int) -> object:
    with database.cursor() as cursor:
        prepared.execute(cursor, {"a": a, "b": b})
        return cursor.fetchone()[0]


def test_a_prepared_statement_is_planned_once_a_connection(database: Database, sums: Prepared) -> None:
    assert [added(database, sums, n, 1) for n in range(3)] == [1, 2, 3]
    assert one(database, "SELECT generic_plans + custom_plans FROM pg_prepared_statements") == 3
    database.dispose()
    assert added(database, sums, 5, 6) == 11
    assert not sums.gives_up


@pytest.mark.parametrize("somebody_did", [False, True])
def test_behind_a_pooler_that_swaps_connections_it_goes_on_unprepared(
    database: Database, sums: Prepared, somebody_did: bool
) -> None:
    """Another connection than the one that prepared it, or one where somebody else did."""
    if somebody_did:
        one(database, f"{sums.prepare}; SELECT 1")
    else:
        added(database, sums, 1, 1)
        one(database, "DEALLOCATE ALL; SELECT 1")
    assert [added(database, sums, n, 1) for n in range(2)] == [1, 2]
    assert sums.gives_up


def test_another_releases_statement_has_another_name(sums: Prepared) -> None:
    """Behind a pooler its name may be there already, with another text and the same parameters."""
    others = Prepared(text("SELECT :a - :b"), {"a": "integer", "b": "integer"})
    assert others.prepared.split("(")[0] != sums.prepared.split("(")[0]


def test_an_error_in_its_first_execution_leaves_it_prepared(database: Database) -> None:
    halves = Prepared(text("SELECT :a / :b"), {"a": "integer", "b": "integer"})
    with pytest.raises(DataError):
        added(database, halves, 1, 0)
    assert added(database, halves, 4, 2) == 2
    assert not halves.gives_up


@pytest.mark.parametrize("said", ["{}", "[]", "null", "-0.5", '"\\u00e9\\n"', '{"a": [1, {"b": null}], "c": 10}'])
@pytest.mark.parametrize("column", ["json", "jsonb"])
def test_json_is_read_as_it_is_however_it_stands_there(database: Database, column: str, said: str) -> None:
    with database.statement() as connection:
        read = connection.exec_driver_sql(f"SELECT CAST(%s AS {column})", (f" \n{said} ",)).scalar_one()
    assert read == json.loads(said)
