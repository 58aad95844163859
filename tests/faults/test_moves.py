"""Whatever operators and workers do, in whatever order, no task leads a life it should not, and changes are audited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import life
from tests.api.server import Api, serving
from tests.faults.lives import Lives
from tests.faults.moves import Moves
from tests.faults.operators import Operators


@pytest.fixture
def api(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Api]:
    with serving(database_url, redis_url, tmp_path / "log") as api:
        yield api


def play(sequences: int, lives: Lives, operators: Operators) -> None:
    run_state_machine_as_test(
        lambda: Moves(lives, operators),
        settings=settings(
            max_examples=sequences, stateful_step_count=25, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


MORE = pytest.mark.nightly("ten times as many sequences as by day")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("short", [15, pytest.param(150, marks=MORE)])
def test_no_sequence_of_calls_and_moves_leads_where_the_life_of_a_task_does_not(
    api: Api, sized: Callable[[int, int], int], short: int
) -> None:
    sequences, token = sized(10_000, short), api.token("ann", "admin")
    with closing(Lives(api.database)) as lives:
        lives.prepare()
        note = partial(lives.note, by_api=True)
        with closing(Operators(api.url, token, "ann", lives.look, note)) as operators:
            play(sequences, lives, operators)
    answers = ", ".join(f"{status}: {n:,}" for status, n in sorted(operators.answers.items()))
    print(f"{lives.sequences:,} sequences of up to 25 moves, {operators.answers.total():,} calls over HTTP ({answers})")
    print(f"{lives.changes:,} changes accepted and audited")
    assert lives.sequences >= sequences
    allowed = {(was, became) for was, some in life.NEXT.items() for became in some}
    if sized(1, 0):  # a few sequences do not come by every corner
        assert allowed <= lives.seen, f"never tried: {allowed - lives.seen}"
