"""A role that is slower than in its own past is found, and a day is read of few roles only."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from celeriac.insights.fleet import slower
from celeriac.insights.history.histogram import BOUNDS, BUCKETS
from celeriac.store.connections import Database
from tests.postgres.conftest import new_task
from tests.postgres.finished import finished, live_worker, registered
from tests.postgres.stages import WORKER, running
from tests.processes import Rows

#: Minutes, each with runs in one bucket.
MINUTES = """
INSERT INTO celeriac.minutes (role, minute, completed, runs)
SELECT :role, date_trunc('minute', now()) - n * interval '1 minute', 5, CAST(:runs AS integer[])
FROM generate_series(:first, :last) n
"""


def past(rows: Rows, role: str, up_to: float, first: int = 70, last: int = 1440) -> None:
    """Minutes of runs that took up to so many seconds, one of the bounds."""
    runs = [0] * BUCKETS
    runs[BOUNDS.index(up_to)] = 5
    rows(MINUTES, role=role, runs=runs, first=first, last=last)


def ran(rows: Rows, role: str, seconds: float) -> None:
    """Each by itself, just now."""
    registered(rows, role)
    for _ in range(slower.FEW):
        finished(rows, role, ago=0, seconds=seconds)


def found(database: Database) -> tuple[list[str], list[str]]:
    """The roles that are slower, and those whose day was read."""
    read: list[str] = []

    def note(_: Any, __: Any, statement: str, parameters: dict[str, Any], *___: Any) -> None:
        if "begin" in parameters and parameters["begin"] == slower.DAY["begin"]:
            read.append(parameters["role"])

    with database.statement() as connection:
        event.listen(connection, "before_cursor_execute", note)
        return [one.role for one in slower.slower(connection)], sorted(read)


def test_roles_that_always_take_long_do_not_have_their_day_read(database: Database, rows: Rows) -> None:
    for role, seconds in {"grown": 20, "steady": 20, "young": 20, "quick": 0.1}.items():
        ran(rows, role, seconds)
    past(rows, "grown", 1.0)
    past(rows, "steady", 30.0)
    past(rows, "quick", 0.1)
    assert found(database) == (["grown"], ["grown", "young"])


def test_the_day_is_read_of_few_roles(database: Database, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slower, "ROLES", 2)
    for n in range(4):
        ran(rows, f"r{n}", 20 + n)
        past(rows, f"r{n}", 1.0)
    assert found(database) == (["r3", "r2"], ["r2", "r3"])


def test_a_few_slow_hours_leave_it_slower(database: Database, rows: Rows) -> None:
    """Two of a day's hours: nine of ten runs were quick."""
    ran(rows, "grown", 20)
    past(rows, "grown", 30.0, last=180)
    past(rows, "grown", 1.0, first=181)
    assert found(database)[0] == ["grown"]


def test_a_role_whose_whole_past_is_this_hour_is_compared_with_it(database: Database, rows: Rows) -> None:
    ran(rows, "young", 20)
    past(rows, "young", 1.0, first=15, last=55)
    with database.statement() as connection:
        (one,) = slower.slower(connection)
    assert (one.now, one.usual) == (pytest.approx(20), pytest.approx(0.95))


@pytest.mark.parametrize(("resources", "expected"), [("{}", []), ('{"shares_process": true}', ["work"])])
def test_tasks_of_a_ticket_took_their_own_time_where_slots_share_a_process(
    database: Database, rows: Rows, resources: str, expected: list[str]
) -> None:
    """Fifty of one ticket that ended at once: one by one each took 0.4 s."""
    registered(rows, "work")
    live_worker(rows, "w", resources=resources)
    finished(rows, "work", ago=0, n=50, seconds=20)
    rows("UPDATE history SET worker_pid = 1")
    past(rows, "work", 1.0)
    assert found(database)[0] == expected


@pytest.mark.parametrize(("resources", "expected"), [("{}", []), ('{"shares_process": true}', ["work"])])
def test_tasks_under_way_do_so_as_well(database: Database, rows: Rows, resources: str, expected: list[str]) -> None:
    registered(rows, "work")
    live_worker(rows, WORKER, concurrency=50, resources=resources)
    running(database, *(new_task() for _ in range(50)))
    rows("UPDATE tickets SET started_at = now() - interval '20 seconds'")
    past(rows, "work", 1.0)
    assert found(database)[0] == expected
