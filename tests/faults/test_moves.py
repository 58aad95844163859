"""Whatever operators and workers do, in whatever order, no task leads a life it should not, and changes are audited."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from celeriac import states
from celeriac.database import Database
from tests.faults.moves import RECORDER, Moves


def test_no_sequence_of_moves_leads_where_the_life_of_a_task_does_not(
    database: Database, sized: Callable[[int, int], int]
) -> None:
    sequences = sized(10_000, 100)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(RECORDER)
    Moves.sequences = Moves.changes = 0
    Moves.seen.clear()
    run_state_machine_as_test(
        lambda: Moves(database),
        settings=settings(
            max_examples=sequences, stateful_step_count=25, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    print(f"{Moves.sequences} sequences of up to 25 moves, {Moves.changes} changes accepted and audited")
    assert Moves.sequences >= sequences
    allowed = {(was, became) for was, some in states.NEXT.items() for became in some}
    if sized(1, 0):  # a few sequences do not come by every corner
        assert allowed <= Moves.seen, f"never tried: {allowed - Moves.seen}"
