"""A fleet has many tasks at work. No statement that each task pays for may walk over those of other roles."""

from __future__ import annotations

from sqlalchemy import create_engine

from tests.postgres.backlog import BASE, analyze, run, tasks
from tests.postgres.explained import MEET_ROOMS, Clone, Measured, complaints, measured
from tests.postgres.test_dead_rows import HOT

FEW, MANY = 100, 40_000

AT_WORK = tasks(
    "a live ticket each",
    "'at-work-' || i, 'other', 'm' || i % 1000, NULL, NULL, now() FROM generate_series(1, :n)",
)


HOTTEST = [name for name in MEET_ROOMS if name.startswith(HOT)]


def beside(url: str, active: int) -> list[Measured]:
    """Without statistics, and with those that are true."""
    engine = create_engine(url)
    with engine.connect() as connection:
        run(connection, [AT_WORK, *BASE], active)
        taken = [measured(connection, HOTTEST)]
        analyze(connection)
        taken.append(measured(connection, HOTTEST))
    engine.dispose()
    return taken


def test_no_statement_of_the_hot_path_walks_over_the_active_tasks_of_others(clone: Clone) -> None:
    for few, many in zip(beside(clone(), FEW), beside(clone(), MANY), strict=True):
        assert len(few) > 20
        assert complaints(few, many) == []
