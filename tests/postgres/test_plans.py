"""A statement costs what it selects: no plan reads a room or the history, whatever its shape and the statistics."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine

from celeriac.store.connections import Database
from tests.postgres.backlog import SHAPES, analyze, analyze_while_idle, fill, is_large
from tests.postgres.explained import EXCEPT, MEET_ROOMS, SHORT, Clone, Measured, complaints, measured
from tests.postgres.parameters import statements

SMALL, LARGE = 5_000, 100_000


def plans(url: str, shape: str, n: int, *, believes: str) -> list[Measured]:
    engine = create_engine(url)
    with engine.connect() as connection:
        if believes == "it is idle":
            analyze_while_idle(connection)
        fill(connection, shape, n)
        taken = [measured(connection)]
        if believes == "nothing, then the truth":
            analyze(connection)
            taken.append(measured(connection))
    engine.dispose()
    return taken


def test_every_statement_that_meets_a_room_is_explained(database: Database) -> None:
    """A new statement fails here until it has an entry in `parameters`, or a reason in `EXCEPT`."""
    with database.engine.connect() as connection:
        fill(connection, "one deep account", 10)
        explained = statements(connection)
    assert set(MEET_ROOMS) - EXCEPT == set(explained)
    assert set(MEET_ROOMS) >= EXCEPT
    assert all(explained.values())


def test_every_table_of_the_engine_is_large_or_known_to_be_short(database: Database) -> None:
    with database.statement() as connection:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'celeriac'"
        tables = set(connection.exec_driver_sql(names).scalars())
    assert {table for table in tables if not is_large(table)} == SHORT | {"version"}


@pytest.mark.parametrize("believes", ["nothing, then the truth", "it is idle"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_statement_reads_the_backlog(clone: Clone, shape: str, believes: str) -> None:
    small = plans(clone(), shape, SMALL, believes=believes)
    large = plans(clone(), shape, LARGE, believes=believes)
    for s, g in zip(small, large, strict=True):
        assert complaints(s, g) == []
