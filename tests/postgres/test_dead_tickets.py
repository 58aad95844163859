"""Tickets live for a moment. Under an old transaction those that are gone stay in the table, unseen: no statement of
the hot path may walk over them, whatever the statistics say of a table in which next to nothing lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, create_engine

from tests.postgres.backlog import fill
from tests.postgres.explained import Clone, Measured, measured

GONE = 3_000

#: What each task pays for.
HOT = ("dispatch.", "enqueue.insert.INSERT", "run.start.", "settle.write.SETTLE", "settle.write.COMPLETE")

#: Pages that may be added to those: a level of an index, and the way there. The dead ones lie on 58.
A_FEW = 50

#: What else meets tickets may read them, a few times, but not for each task again.
A_FEW_TIMES = 300

#: What they were, a while ago.
DIE = f"""
INSERT INTO celeriac.tickets (token, role, ids, accounts, claimed_at)
SELECT gen_random_uuid(), 'gone', ARRAY[n], ARRAY[''], now() - interval '1 hour' FROM generate_series(1, {GONE}) AS n;
DELETE FROM celeriac.tickets;
ANALYZE celeriac.tickets;
"""


def test_no_statement_of_the_hot_path_walks_over_dead_tickets(clone: Clone) -> None:
    few, many = clone(), clone()
    with open_since_before(many) as engine:
        with engine.begin() as connection:
            connection.exec_driver_sql(DIE)
        after = pages(engine)
    with open_since_before(few) as engine:
        before = pages(engine)
    added = {name: plan.pages - before[name].pages for name, plan in after.items()}
    assert sum(name.startswith(HOT) for name in added) > 20
    walked = {n for n, pages in added.items() if pages > (A_FEW if n.startswith(HOT) else A_FEW_TIMES)}
    assert {name: f"{added[name]} pages more: {after[name]}" for name in walked} == {}


@contextmanager
def open_since_before(url: str) -> Iterator[Engine]:
    """Beside a transaction that keeps what dies from being vacuumed."""
    engine = create_engine(url)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as old:
        old.exec_driver_sql("SELECT count(*) FROM celeriac.roles")
        yield engine
    engine.dispose()


def pages(engine: Engine) -> Measured:
    with engine.connect() as connection:
        fill(connection, "one deep account", 10)
        return measured(connection)
