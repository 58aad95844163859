"""How long a small piece of work takes in Postgres tells of processors that are short, not of one stall."""

from __future__ import annotations

from itertools import accumulate

import pytest

from celeriac.insights.fleet.slowness import PIECES, SERIES, LongStatement, Slowness, crowd_of

QUICK = 0.0001


def times(*stalled: int, stall: float = 0.1) -> list[float]:
    """When each piece began; those stalled took so much longer (seconds)."""
    took = [QUICK + (stall if n in stalled else 0.0) for n in range(SERIES * PIECES)]
    return list(accumulate(took, initial=1_000.0))


@pytest.mark.parametrize("piece", range(SERIES * PIECES))
def test_one_stall_is_none(piece: int) -> None:
    assert crowd_of(times(piece)) == pytest.approx(1.0, rel=0.01)


def test_a_processor_that_is_shared_is_given_by_turns() -> None:
    """Of four that want it, each runs for 3 ms and waits for nine."""
    assert crowd_of(times(*range(0, SERIES * PIECES, 30), stall=0.009)) == pytest.approx(3.6, rel=0.1)


def test_a_clock_that_stands_still_tells_nothing() -> None:
    assert crowd_of([1_000.0] * (SERIES * PIECES + 1)) == 1.0


def test_whose_statement_runs_for_long_is_named_with_what_is_under_way_beside_it() -> None:
    theirs, ours = (LongStatement(7, "ann", name, 65.0, "SELECT ...", False) for name in ("psql", "celeriac api"))
    beside = ["a vacuum of dead is under way (pid 9)", "a checkpoint is under way"]
    told = Slowness(4.0, [ours, theirs], beside).sentence
    assert "pid 7 (login ann, celeriac api) (the engine's own) runs for 1 min" in told
    assert told.endswith("; 1 more run for over 5 s; " + "; ".join(beside))
    assert "the engine's own" not in theirs.sentence
    assert "raise autovacuum_vacuum_cost_delay" in LongStatement(9, "", "", 65.0, "autovacuum: VACUUM", True).cure
