"""A statement costs what it selects: no plan reads a room or the history, whatever its shape and the statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, create_engine

from celeriac.store.connections import Database
from tests.postgres.backlog import SHAPES, analyze, analyze_while_idle, fill, forget, is_large
from tests.postgres.explained import (
    ALLOWED,
    ALLOWED_AT_LARGE,
    EXCEPT,
    MEET_ROOMS,
    SHORT,
    Clone,
    Measured,
    complaints,
    measured,
)
from tests.postgres.parameters import statements

SMALL, TELLING, LARGE = 5_000, 40_000, 100_000

#: A plan of theirs that follows the backlog of an account shows at 100,000 tasks, and not at 40,000.
LATE = {"insights.held.WHICH_OF", "operate.revoke.REVOCABLE"}


#: Shapes that stand beside each other in one database. By night each stands alone.
TOGETHER = {
    "deep": ("one deep account", "behind one held lock", "parked", "not due"),
    "wide": ("accounts with caps", "behind many locks", "many chords", "long chains", "failures"),
    "others": ("a wide chord", "many paused accounts", "another role's", "long history"),
}


def plans(url: str, shapes: Sequence[str], n: int, names: Iterable[str]) -> dict[str, Measured]:
    """Plans on a backlog with `n` tasks of each shape, by what the planner believes of it."""
    with connected(url) as connection:
        analyze_while_idle(connection)
        fill(connection, shapes, n)
        idle = measured(connection, names)
        forget(connection)
        nothing = measured(connection, names)
        analyze(connection)
        return {"it is idle": idle, "nothing": nothing, "the truth": measured(connection, names)}


def grows(clone: Clone, shapes: Sequence[str], size: int, names: Iterable[str] = MEET_ROOMS) -> list[str]:
    """What is wrong with plans at that size, beside those of a small backlog."""
    small = plans(clone(), shapes, SMALL, names)
    large = plans(clone(), shapes, size, names)
    allowed = ALLOWED if size * len(shapes) < LARGE else ALLOWED_AT_LARGE
    return [
        f"who believes {belief}: {wrong}"
        for belief in small
        for wrong in complaints(small[belief], large[belief], allowed)
    ]


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """One at a time: an ANALYZE that is not committed keeps others out of what databases share."""
    engine = create_engine(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_every_statement_that_meets_a_room_is_explained(database: Database) -> None:
    """A new statement fails here until it has an entry in `parameters`, or a reason in `EXCEPT`."""
    with database.engine.connect() as connection:
        fill(connection, ["one deep account"], 10)
        explained = statements(connection)
    assert set(MEET_ROOMS) - EXCEPT == set(explained)
    assert set(MEET_ROOMS) >= EXCEPT
    assert all(explained.values())


def test_every_table_of_the_engine_is_large_or_known_to_be_short(database: Database) -> None:
    with database.statement() as connection:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'celeriac'"
        tables = set(connection.exec_driver_sql(names).scalars())
    assert {table for table in tables if not is_large(table)} == SHORT | {"version"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", TOGETHER)
def test_no_statement_reads_the_backlog(clone: Clone, together: str) -> None:
    assert grows(clone, TOGETHER[together], TELLING) == []


def test_each_shape_stands_beside_others() -> None:
    assert {shape for shapes in TOGETHER.values() for shape in shapes} == SHAPES.keys() - {"many accounts"}
    assert set(SHAPES["many accounts"]) < set(SHAPES["accounts with caps"])


@pytest.mark.nightly("minutes of Postgres; by day the shapes stand beside each other")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("size", [TELLING, LARGE])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_statement_reads_the_backlog_of_a_shape_alone(clone: Clone, shape: str, size: int) -> None:
    assert grows(clone, [shape], size) == []


def test_what_is_asked_of_one_account_does_not_follow_its_backlog(clone: Clone) -> None:
    assert grows(clone, ["one deep account"], LARGE, LATE) == []
