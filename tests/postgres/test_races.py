"""Two threads or processes after the same rows and keys, a thousand times: nothing doubles, nobody gets an error."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import make_url

from celeriac import Celeriac
from celeriac.repair import hand_over
from celeriac.store.connections import Database
from tests.postgres import racers
from tests.processes import Rows, until

IN_ONE = pytest.mark.nightly("the same locks of Postgres decide as between processes, which race by day")

Race = Callable[[Callable[[str, int], Any]], list[Any]]


@pytest.fixture(scope="module", params=["processes", pytest.param("threads", marks=IN_ONE)])
def sides(request: pytest.FixtureRequest) -> Iterator[Executor]:
    spawned = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(2) if request.param == "threads" else ProcessPoolExecutor(2, spawned) as executor:
        yield executor


@pytest.fixture
def race(sides: Executor, database_url: str, database: Database) -> Race:
    """Starts two sides at one moment; what each returned."""

    def run(side: Callable[[str, int], Any]) -> list[Any]:
        with database.statement() as connection:  # no crash is at stake, and no disk is to set the pace
            connection.exec_driver_sql(f"ALTER DATABASE {make_url(database_url).database} SET synchronous_commit = off")
        with database.engine.connect() as line, database.statement() as watching:
            line.exec_driver_sql(f"SELECT pg_advisory_lock({racers.LINE})")
            running = [sides.submit(side, database_url, n) for n in range(2)]
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            until(lambda: watching.exec_driver_sql(waiting).scalar_one() == 2, "both at the line")
            line.exec_driver_sql(f"SELECT pg_advisory_unlock({racers.LINE})")
            return [future.result() for future in running]

    return run


def test_no_row_is_claimed_twice(race: Race, rows: Rows) -> None:
    rows("INSERT INTO worker_tasks (task_id, role) SELECT n, 'work' FROM generate_series(1, 2000) n")
    one, other = race(racers.claims)
    assert len(one) == len(other) == 2 * racers.ROUNDS
    assert sorted(one + other) == rows("SELECT id, token::text FROM worker_tasks WHERE status = 'claimed' ORDER BY id")


def test_no_lock_has_two_leaders_or_none_for_long(race: Race, app: Celeriac, rows: Rows) -> None:
    rows(racers.INSIDE)
    runs = sum(race(racers.locks))
    assert runs > racers.ROUNDS
    while hand_over.hand_over(app) + racers.run_one(app.database):
        pass
    assert rows("SELECT status, count(*) FROM worker_tasks GROUP BY status") == [("completed", 2 * racers.ROUNDS)]


def test_no_unique_key_has_two_unfinished_tasks_and_everybody_gets_a_receipt(race: Race, rows: Rows) -> None:
    (new, found), (other_new, other_found) = race(racers.unique_keys)
    assert new + other_new == rows.one("SELECT count(*) FROM worker_tasks")
    assert new + found + other_new + other_found == 2 * racers.ROUNDS
    assert min(new, other_new) > 0


def test_bulks_of_the_same_keys_in_any_order_leave_no_key_without_a_leader(race: Race, rows: Rows) -> None:
    new = sum(race(racers.bulks))
    assert new == rows.one("SELECT count(DISTINCT unique_key) FROM worker_tasks")
    leaders = "SELECT lock_key, count(*) FILTER (WHERE waits_for IS NULL) FROM worker_tasks GROUP BY lock_key"
    assert {n for _, n in rows(leaders)} == {1}
    assert rows("SELECT FROM looks") == []
